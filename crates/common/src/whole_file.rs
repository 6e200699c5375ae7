//! Files that are there as a whole or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::private_folder::is_trusted;

/// What the names of unfinished files begin and end with.
const PREFIX: &str = ".stalloc-";
const SUFFIX: &str = ".tmp";

/// Makes something that is no stream of bytes (a link) next to its place under a name that nobody has, and moves it there: what was
/// there before is replaced. Processes of several machines or containers, which may have the same number, do not meet.
pub fn replace(path: &Path, make: impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let folder = folder_of(path);
    let made = tempfile::Builder::new().prefix(PREFIX).suffix(SUFFIX).make_in(folder, make)?;
    let unfinished = made.path().to_owned();
    made.persist(path).map_err(|error| error.error)?;
    // The system leaves both names where they are of one file: another process has made the same link meanwhile.
    match std::fs::remove_file(unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Writes a file that we have named next to its place and moves it there once it is whole and on disk: no reader ever meets half of
/// it, and a failure leaves what was there before. A link of that name, which may be another user's, is replaced, not what it leads to.
pub fn whole_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let folder = folder_of(path);
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX);
    // Temporary files are private to their owner; this one will be like any other.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let file = builder.tempfile_in(folder)?;
    let mut out = BufWriter::new(file);
    write(&mut out)?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    // The rename itself is on disk once the directory is; where a directory cannot be opened, nothing more can be done.
    match File::open(folder) {
        Ok(folder) => folder.sync_all(),
        Err(_) => Ok(()),
    }
}

/// The same for a file that the user has named: where the user's own links lead is replaced, and what is no file (a terminal, a
/// pipe) is written as it is.
pub fn users_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    match path.metadata() {
        Ok(about) if !about.is_file() => write(&mut File::create(path)?),
        _ => whole_file(&behind_links(path), write),
    }
}

/// Opens a file that is there to be locked, and makes it; never through a link, and waits for no pipe.
pub fn lock_file(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    File::options().create(true).append(true).custom_flags(flags).open(path)
}

/// Where a file that the user has named is to be written: behind a link, if that is the user's own or root's.
fn behind_links(path: &Path) -> PathBuf {
    let is_trusted = path.symlink_metadata().is_ok_and(|link| is_trusted(link.uid()));
    path.canonicalize().ok().filter(|_| is_trusted).unwrap_or_else(|| path.to_owned())
}

/// A new file among the temporary ones, under a name that nobody can guess.
pub fn temporary_file(prefix: &str, suffix: &str) -> io::Result<PathBuf> {
    let file = tempfile::Builder::new().prefix(prefix).suffix(suffix).tempfile()?;
    file.into_temp_path().keep().map_err(|error| error.error)
}

/// A number by which names of files differ (FNV-1a): nothing depends on its being hard to guess.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests;
