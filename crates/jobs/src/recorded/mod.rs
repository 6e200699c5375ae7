//! What a launch recorded: the traces in a folder, and what each amounts to.

pub mod alike;
pub(crate) mod summary;

use std::fs;
use std::path::{Path, PathBuf};

use stalloc_trace::Input;

pub use self::summary::{HostReadSite, Summary};
use crate::{Error, Watch};

/// Sums up the traces that the processes of a launch left in `folder`, and names those that are alike. What was cut off is
/// noted.
pub fn of_launch(folder: &Path, launch: &str, watch: &mut dyn Watch) -> Result<Vec<Summary>, Error> {
    let mut summaries = Vec::new();
    for path in traces_of(folder, launch)? {
        let read = stalloc_trace::open(&path, &mut |done, total| watch.progress("reading", done, total));
        let Input::Recording(recording) = read? else { continue };
        if !is_whole(&path) {
            watch.note(&format!(
                "{}: the recording was cut off (was the program killed?): it holds what was written until then",
                path.display()
            ));
        }
        summaries.extend(recording.traces.iter().map(|trace| summary::of(&path, trace)));
    }
    summary::find_alike(&mut summaries);
    Ok(summaries)
}

/// Lets traces that are alike share one file on the disk, each under its own name. Where that cannot be, they stay as they are;
/// those of different GPUs do too, since a trace says which GPU it is of.
pub fn store_once(folder: &Path, summaries: &[Summary]) {
    let is_of = |file: &str, device| summaries.iter().any(|other| other.file == file && other.device == device);
    for summary in summaries {
        let Some(first) = summary.same_as.as_ref().filter(|first| is_of(first, summary.device)) else { continue };
        let _ = alike::link(&folder.join(first), &folder.join(&summary.file));
    }
}

/// Those of the traces in `directory` that the processes of one launcher wrote.
pub(crate) fn traces_of(directory: &Path, launch: &str) -> Result<Vec<PathBuf>, Error> {
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
pub fn traces(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| Error::Folder { path: directory.to_owned(), source };
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

/// The rank that a trace's name says.
pub(crate) fn rank(path: &Path) -> Option<u32> {
    Some(rank_and_device(path.file_name()?.to_str()?)?.0)
}

/// The numbers in `rank<R>_dev<N>.trace` or `rank<R>_dev<N>.<P>.trace`.
fn rank_and_device(name: &str) -> Option<(u32, u32)> {
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
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 4);
        assert!(traces_of(directory.path(), "a launch").unwrap().is_empty(), "what is no trace is nobody's");
    }
}
