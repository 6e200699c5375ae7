//! Ranks that do the same share one plan: known by what their traces hold, and kept as one file on the disk.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use stalloc_trace::Trace;

use super::summary;

/// What two traces have in common if they are alike: a hash of their events, GPUs, addresses and times aside, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceContent(u64, usize);

/// What a trace holds. O(events).
pub fn content(trace: &Trace) -> TraceContent {
    TraceContent(summary::content(trace), trace.events.len())
}

/// What was made of traces, found again by a trace that is alike.
#[derive(Debug)]
pub struct Alike<T> {
    files: FxHashMap<(u64, u64), T>,
    contents: FxHashMap<TraceContent, T>,
}

impl<T> Default for Alike<T> {
    fn default() -> Self {
        Alike { files: FxHashMap::default(), contents: FxHashMap::default() }
    }
}

impl<T: Clone> Alike<T> {
    /// What was made of the same file under another name. O(1): the file is not read.
    pub fn of_file(&self, path: &Path) -> Option<T> {
        self.files.get(&identity(path)?).cloned()
    }

    /// What was made of a trace of this content; the next one finds it by `path` too.
    pub fn of_content(&mut self, path: &Path, content: TraceContent) -> Option<T> {
        let made = self.contents.get(&content).cloned()?;
        self.note_file(path, made.clone());
        Some(made)
    }

    /// Remembers what was made of a trace.
    pub fn add(&mut self, path: &Path, content: TraceContent, made: T) {
        self.note_file(path, made.clone());
        self.contents.insert(content, made);
    }

    fn note_file(&mut self, path: &Path, made: T) {
        if let Some(identity) = identity(path) {
            self.files.insert(identity, made);
        }
    }
}

/// Which file a path leads to: its device's and its own number.
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).ok().map(|about| (about.dev(), about.ino()))
}

/// Has `path` hold what `first` holds: one file on the disk where the file system can, else a copy. Whole or not at all.
pub fn share(first: &Path, path: &Path) -> io::Result<()> {
    link(first, path).or_else(|_| {
        let mut from = File::open(first)?;
        stalloc_common::whole_file(path, |out| io::copy(&mut from, out).map(|_| ()))
    })
}

/// Has `path` be another name of the file `first`.
pub(super) fn link(first: &Path, path: &Path) -> io::Result<()> {
    stalloc_common::replace(path, |new| fs::hard_link(first, new))
}

/// Where ranks of one job, each in a process of its own, keep the plan of traces that are alike: one plans, the others wait for it.
pub struct SharedPlan {
    /// The plan, if somebody was first.
    pub plan: PathBuf,
    _lock: Option<File>,
}

/// Waits until nobody else plans this content in `folder`. Where files cannot be locked nobody waits, and two may do the same work.
pub fn shared(folder: &Path, content: TraceContent) -> SharedPlan {
    let name = format!(".shared-{:016x}-{}", content.0, content.1);
    let lock = stalloc_common::lock_file(&folder.join(format!("{name}.lock")));
    let lock = lock.and_then(|file| file.lock().map(|()| file)).ok();
    SharedPlan { plan: folder.join(format!("{name}.plan")), _lock: lock }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_file_is_one_on_the_disk_and_replaces_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["rank0_dev0.plan", "rank1_dev0.plan"].map(|name| folder.path().join(name));
        fs::write(&first, b"new").unwrap();
        fs::write(&second, b"old").unwrap();
        share(&first, &second).unwrap();
        share(&first, &second).unwrap();
        assert_eq!(fs::read(&second).unwrap(), b"new");
        assert_eq!(identity(&first), identity(&second));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");
        // What a process of our number left, on another machine or killed, is not written into: it is another name of a plan.
        let third = folder.path().join("rank2_dev0.plan");
        fs::write(&third, b"another").unwrap();
        fs::hard_link(&first, folder.path().join(format!(".rank1_dev0.plan.{}", std::process::id()))).unwrap();
        share(&third, &second).unwrap();
        assert_eq!((fs::read(&first).unwrap(), fs::read(&second).unwrap()), (b"new".to_vec(), b"another".to_vec()));
        assert!(share(&folder.path().join("none"), &second).is_err());
        assert_eq!(fs::read(&second).unwrap(), b"another");
    }
}
