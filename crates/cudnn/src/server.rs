//! The process that has cuDNN loaded: answers calls until whoever started it is gone.

use crate::{Call, Reply, library::Library};
use std::{
    fs::File,
    io::{self, BufReader},
    os::fd::FromRawFd,
    path::Path,
    process::ExitCode,
};

/// Serves the calls that come over standard input, which is a socket, with the libraries of a folder.
#[must_use]
pub fn serve(folder: &Path) -> ExitCode {
    // SAFETY: `dup` takes a number; the descriptor that it gives is nobody else's.
    let stream = unsafe {
        let descriptor = libc::dup(0);
        if descriptor < 0 {
            return ExitCode::FAILURE;
        }
        File::from_raw_fd(descriptor)
    };
    let _ = answer(folder, &stream);
    // SAFETY: ends the process at once: the library's own destructors, which may abort with no device, do not run.
    unsafe { libc::_exit(0) }
}

fn answer(folder: &Path, mut stream: &File) -> io::Result<()> {
    let library = match Library::load(folder) {
        Ok(library) => library,
        Err(_) => return Reply::status(1).send(&mut stream),
    };
    Reply::status(0).send(&mut stream)?;
    let mut calls = BufReader::new(stream);
    while let Some(call) = Call::receive(&mut calls)? {
        library.call(call).send(&mut stream)?;
    }
    Ok(())
}
