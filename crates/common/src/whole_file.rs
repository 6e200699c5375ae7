//! Files that are there as a whole or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

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

/// Writes a file next to its place and moves it there once it is whole and on disk: no reader ever meets half of it, and a
/// failure leaves what was there before. Where a link leads is replaced, not the link; what is no file (a terminal, a pipe)
/// is written as it is.
pub fn whole_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    if path.metadata().is_ok_and(|about| !about.is_file()) {
        return write(&mut File::create(path)?);
    }
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = folder_of(&target);
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
    file.persist(&target).map_err(|error| error.error)?;
    // The rename itself is on disk once the directory is; where a directory cannot be opened, nothing more can be done.
    match File::open(folder) {
        Ok(folder) => folder.sync_all(),
        Err(_) => Ok(()),
    }
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
