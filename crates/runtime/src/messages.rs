//! What the user is told: every line of the Rust side goes through here.
//!
//! A line that cannot be printed is nobody's concern: standard error may be closed, a pipe that nobody reads any more, or a
//! file on a full disk, and the job runs on. `python/stalloc/_common/output.py` is the same for Python.

use std::mem::MaybeUninit;
use std::ptr;

/// Prints `stalloc: text` on standard error, as a line. Never fails, and raises no SIGPIPE.
pub fn say(text: &str) {
    write_line(libc::STDERR_FILENO, &format!("stalloc: {}\n", stalloc_common::printable(text)));
}

/// Writes a line as far as it can be written.
fn write_line(descriptor: libc::c_int, line: &str) {
    let guard = BlockedSigpipe::new();
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        // SAFETY: the pointer and the length are of one slice.
        let written = unsafe { libc::write(descriptor, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(written) {
            Ok(0) => break,
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(_) if errno() == libc::EINTR => {}
            Err(_) if errno() == libc::EPIPE => {
                guard.take_signal();
                break;
            }
            Err(_) => break,
        }
    }
}

fn errno() -> libc::c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Keeps SIGPIPE from this thread while it lives: a program may have given it back its default, which ends the process.
struct BlockedSigpipe {
    pipe: libc::sigset_t,
    /// The thread's mask before; `None` if it could not be set.
    before: Option<libc::sigset_t>,
    /// A signal that somebody else's write has raised is left to them.
    was_pending: bool,
}

impl BlockedSigpipe {
    fn new() -> Self {
        // SAFETY: the sets are written by the calls before they are read, and every pointer is to a local.
        unsafe {
            let mut pipe = MaybeUninit::<libc::sigset_t>::zeroed().assume_init();
            libc::sigemptyset(&mut pipe);
            libc::sigaddset(&mut pipe, libc::SIGPIPE);
            let mut pending = pipe;
            let was_pending = libc::sigpending(&mut pending) == 0 && libc::sigismember(&pending, libc::SIGPIPE) == 1;
            let mut before = pipe;
            let is_set = libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, &mut before) == 0;
            BlockedSigpipe { pipe, before: is_set.then_some(before), was_pending }
        }
    }

    /// Takes the signal that a write raised.
    fn take_signal(&self) {
        if self.before.is_some() && !self.was_pending {
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: set and time are ours; what was taken is of no interest.
            unsafe { libc::sigtimedwait(&self.pipe, ptr::null_mut(), &now) };
        }
    }
}

impl Drop for BlockedSigpipe {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // SAFETY: the mask is the thread's own of before.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_into_a_pipe_that_nobody_reads_a_full_disk_or_nowhere_is_lost_and_nothing_else() {
        let mut ends = [0; 2];
        // SAFETY: `ends` has room for two descriptors, which are ours alone; the signal's default would end this test.
        unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            libc::close(ends[0]);
            let before = libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            write_line(ends[1], "into the void\n");
            libc::signal(libc::SIGPIPE, before);
            libc::close(ends[1]);
            let full = libc::open(c"/dev/full".as_ptr(), libc::O_WRONLY);
            assert!(full >= 0);
            write_line(full, "no space left\n");
            libc::close(full);
            write_line(full, "closed\n");
        }
        write_line(-1, "no such descriptor\n");
    }

    #[test]
    fn a_line_is_written_whole() -> std::io::Result<()> {
        use std::os::fd::AsRawFd;
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("log");
        let file = std::fs::File::create(&path)?;
        write_line(file.as_raw_fd(), "one line\n");
        assert_eq!(std::fs::read_to_string(path)?, "one line\n");
        Ok(())
    }
}
