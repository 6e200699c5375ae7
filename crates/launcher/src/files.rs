//! The traces in a directory.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;

/// Makes `directory`, sees that it can be written to, and removes the traces of an earlier run from it.
///
/// # Errors
/// If any of that fails.
pub fn clear(directory: &Path) -> Result<(), Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Directory { path, source }
    };
    fs::create_dir_all(directory).map_err(failed(directory))?;
    let probe = directory.join(format!(".stalloc-{}", std::process::id()));
    fs::write(&probe, b"").and_then(|()| fs::remove_file(&probe)).map_err(failed(directory))?;
    for trace in traces(directory)? {
        fs::remove_file(&trace).map_err(failed(&trace))?;
    }
    Ok(())
}

/// The traces in `directory`, in the order of ranks and devices.
///
/// # Errors
/// If it cannot be read.
pub fn traces(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| Error::Directory { path: directory.to_owned(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if let Some(key) = path.file_name().and_then(|name| rank_and_device(name.to_str()?)) {
            found.push((key, path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// The numbers in `rank<R>_dev<N>.trace` or `rank<R>_dev<N>.<P>.trace`.
pub(crate) fn rank_and_device(name: &str) -> Option<(u32, u32)> {
    let (rank, rest) = name.strip_prefix("rank")?.strip_suffix(".trace")?.split_once("_dev")?;
    let device = rest.split_once('.').map_or(rest, |(device, _)| device);
    Some((rank.parse().ok()?, device.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_traces_are_traces() {
        assert_eq!(rank_and_device("rank12_dev3.trace"), Some((12, 3)));
        assert_eq!(rank_and_device("rank12_dev3.4711.trace"), Some((12, 3)));
        for other in ["rank_dev0.trace", "rank0_dev0.trace.zst", "rank0.trace", "rank0_devx.trace", "my.trace"] {
            assert_eq!(rank_and_device(other), None, "{other}");
        }
    }

    #[test]
    fn clearing_removes_old_traces_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["rank10_dev0.trace", "rank2_dev1.trace", "notes.txt"] {
            fs::write(directory.path().join(name), b"x").unwrap();
        }
        let names = |paths: Vec<PathBuf>| -> Vec<String> {
            paths.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
        };
        assert_eq!(names(traces(directory.path()).unwrap()), ["rank2_dev1.trace", "rank10_dev0.trace"]);
        clear(directory.path()).unwrap();
        assert!(traces(directory.path()).unwrap().is_empty());
        assert!(directory.path().join("notes.txt").exists());
    }

    #[test]
    fn a_file_in_the_place_of_the_directory_is_an_error_that_names_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, b"").unwrap();
        let message = clear(&file.join("below")).unwrap_err().to_string();
        assert!(message.starts_with(&format!("cannot write to {}", file.display())), "{message}");
    }
}
