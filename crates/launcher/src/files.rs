//! The traces in a directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::Error;

/// Makes `directory` and sees that it can be written to; what it holds stays. Returns a name of this launch that no other
/// has: the moment by the file system's clock, so that what is older is known by it, and of this process.
///
/// # Errors
/// If any of that fails.
pub fn prepare(directory: &Path) -> Result<String, Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Directory { path, source }
    };
    fs::create_dir_all(directory).map_err(failed(directory))?;
    // Other machines may have a process of our number.
    let nanoseconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let own = format!("{}-{:x}", std::process::id(), nanoseconds(SystemTime::now()));
    let probe = directory.join(format!(".stalloc-{own}"));
    let written = fs::write(&probe, b"").and_then(|()| fs::metadata(&probe)?.modified());
    let removed = fs::remove_file(&probe);
    let started = written.and_then(|time| removed.map(|()| time)).map_err(failed(directory))?;
    Ok(format!("{:x}-{own}", nanoseconds(started)))
}

/// Those of the traces in `directory` that the processes of one launcher wrote.
///
/// # Errors
/// If the directory cannot be read.
pub fn traces_of(directory: &Path, launch: &str) -> Result<Vec<PathBuf>, Error> {
    let is_of = |path: &PathBuf| {
        let about = fs::File::open(path).and_then(|mut file| stalloc_trace::format::about(&mut file));
        about.ok().flatten().is_some_and(|about| about.metadata.get("launch").is_some_and(|of| of == launch))
    };
    Ok(traces(directory)?.into_iter().filter(is_of).collect())
}

/// Whether a trace's end was recorded: that of a killed program was not.
pub fn is_whole(trace: &Path) -> bool {
    let about = fs::File::open(trace).and_then(|mut file| stalloc_trace::format::about(&mut file));
    about.ok().flatten().is_some_and(|about| about.is_whole)
}

/// The traces in `directory`, in the order of ranks and devices. Only files are: opening a pipe would wait for ever.
///
/// # Errors
/// If it cannot be read.
pub fn traces(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| Error::Directory { path: directory.to_owned(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if !path.is_file() {
            continue;
        }
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
    fn traces_are_found_in_order_and_none_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("rank3_dev0.trace")).unwrap();
        for name in ["rank10_dev0.trace", "rank2_dev1.trace", "notes.txt"] {
            fs::write(directory.path().join(name), b"x").unwrap();
        }
        let names = |paths: Vec<PathBuf>| -> Vec<String> {
            paths.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
        };
        assert_eq!(names(traces(directory.path()).unwrap()), ["rank2_dev1.trace", "rank10_dev0.trace"]);
        let launch = prepare(directory.path()).unwrap();
        assert_ne!(launch, prepare(directory.path()).unwrap());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 4);
        assert!(traces_of(directory.path(), &launch).unwrap().is_empty(), "what is no trace is nobody's");
    }

    #[test]
    fn a_file_in_the_place_of_the_directory_is_an_error_that_names_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, b"").unwrap();
        let message = prepare(&file.join("below")).unwrap_err().to_string();
        assert!(message.starts_with(&format!("cannot write to {}", file.display())), "{message}");
    }
}
