//! Which file a process may write.
//!
//! Several processes write into one folder: ranks, one by one or at once, of one launcher or of several, on one machine or
//! on several with a shared file system. None may lose what another has recorded. So a file is only ever made where there
//! is none; a recording takes the place of an older one when it is whole, and only of one that was surely over before its
//! own launcher started: not written since, not locked, and whole itself or of this machine, where locks can be trusted.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use crate::process::Process;

/// Names that are tried for a file whose name is taken.
const TRIES: u32 = 1000;

/// A new file `rank<R>_dev<N>.trace`, or one with our process's number if that is taken; locked.
pub fn create(directory: &Path, rank: u32, device: u32) -> io::Result<(PathBuf, File)> {
    let process = std::process::id();
    let mut path = directory.join(name(rank, device));
    for number in 1..TRIES {
        match File::create_new(&path) {
            Ok(file) => {
                // Without locks a file of ours is known by what it says of us.
                let _ = file.try_lock();
                return Ok((path, file));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Another machine's process may have our number.
                let more = if number == 1 { String::new() } else { format!("-{number}") };
                path = directory.join(format!("rank{rank}_dev{device}.{process}{more}.trace"));
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Gives a whole recording the name of its rank and device, if nobody else's recording has it or an older one that is over.
pub fn settle(path: &Path, directory: &Path, rank: u32, device: u32, process: &Process) -> io::Result<()> {
    let wanted = directory.join(name(rank, device));
    if path == wanted {
        return Ok(());
    }
    match fs::hard_link(path, &wanted) {
        Ok(()) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match over(&wanted, process) {
            Some(_locked) => fs::rename(path, &wanted),
            None => Ok(()),
        },
        // A file system without links.
        Err(_) if !wanted.exists() => fs::rename(path, &wanted),
        Err(_) => Ok(()),
    }
}

fn name(rank: u32, device: u32) -> String {
    format!("rank{rank}_dev{device}.trace")
}

/// The recording at `path`, locked, if it was over before our launcher started.
fn over(path: &Path, process: &Process) -> Option<File> {
    let is_file = |about: &fs::Metadata| about.is_file();
    fs::symlink_metadata(path).ok().filter(is_file)?;
    let mut file = File::open(path).ok()?;
    file.try_lock().ok()?;
    // Before the lock was ours, the name may have been given to another file.
    let (locked, named) = (file.metadata().ok()?, fs::symlink_metadata(path).ok()?);
    if (locked.dev(), locked.ino()) != (named.dev(), named.ino()) {
        return None;
    }
    let written = locked.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    if written.as_nanos() >= started(process)? {
        return None;
    }
    if locked.len() == 0 {
        return Some(file);
    }
    let about = stalloc_trace::format::about(&mut file).ok()??;
    let is_ours = about.metadata.get("host").is_some_and(|host| process.metadata.get("host") == Some(host));
    (about.is_whole || is_ours).then_some(file)
}

/// When our launcher started, by the file system's clock: its name begins with the nanoseconds since 1970, in hexadecimal.
fn started(process: &Process) -> Option<u128> {
    let (start, _) = process.metadata.get("launch")?.split_once('-')?;
    u128::from_str_radix(start, 16).ok()
}
