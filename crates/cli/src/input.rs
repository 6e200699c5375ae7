//! The files that a user names, as the commands can read them.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};

use crate::error::Error;

/// More than any recording, compressed or not, bytes: a pipe that never ends must not fill the disk.
const MOST: u64 = 16 << 30;

/// A path, or `-` for standard input.
pub fn parser() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(readable)
}

/// Inputs are opened several times. What can be read only once is kept in a file that has no name, and the path leads there.
fn readable(path: PathBuf) -> io::Result<PathBuf> {
    let is_stdin = path == Path::new("-");
    let path = if is_stdin { PathBuf::from("/dev/stdin") } else { path };
    // Whoever opens what is not there says so.
    let Ok(about) = path.metadata() else { return Ok(path) };
    let kind = about.file_type();
    if is_stdin && !kind.is_file() {
        rustix::stdio::dup2_stdin(kept(io::stdin().lock())?)?;
    } else if kind.is_fifo() {
        let file = kept(File::open(&path)?)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        std::mem::forget(file); // open until the end of the process
        return Ok(path);
    }
    Ok(path)
}

fn kept(from: impl Read) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    if io::copy(&mut from.take(MOST), &mut file)? == MOST {
        return Err(io::Error::other("more than 16 GiB: write it to a file"));
    }
    Ok(file)
}

/// Refuses to write `output` over the recording that it is made from.
pub fn keep(input: &Path, output: Option<&Path>) -> Result<(), Error> {
    let identity = |path: &Path| path.metadata().ok().filter(|about| about.is_file()).map(|one| (one.dev(), one.ino()));
    match output {
        Some(output) if identity(output).is_some_and(|one| identity(input) == Some(one)) => {
            Err(Error::message(format!("{} is the input, and would be lost: write to another file", output.display())))
        }
        _ => Ok(()),
    }
}
