//! The process that has cuDNN loaded: answers calls until whoever started it is gone.

use crate::{Call, Reply, library::Library};
use std::{
    fs::File,
    io::{self, BufReader},
    os::fd::FromRawFd,
    path::Path,
    process::ExitCode,
};

/// Serves the calls that come over standard input, which is a socket, with the libraries of a folder, in a process that is no child of the
/// one that asks: this one ends at once.
#[must_use]
pub fn serve(folder: &Path) -> ExitCode {
    // SAFETY: no thread was started yet.
    match unsafe { libc::fork() } {
        0 => {}
        -1 => return ExitCode::FAILURE,
        _ => return ExitCode::SUCCESS,
    }
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
    let wait = |seconds| {
        // SAFETY: sets a timer. One that runs out ends a process whose library has stopped, which nobody else does.
        unsafe { libc::alarm(seconds) }
    };
    wait(crate::LONGEST_WAIT);
    let library = match Library::load(folder) {
        Ok(library) => library,
        Err(_) => return Reply::status(1).send(&mut stream),
    };
    wait(0);
    Reply::status(0).send(&mut stream)?;
    let mut calls = BufReader::new(stream);
    while let Some(call) = Call::receive(&mut calls)? {
        wait(crate::LONGEST_WAIT);
        let reply = library.call(call);
        wait(0);
        reply.send(&mut stream)?;
    }
    Ok(())
}
