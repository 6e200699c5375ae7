//! File descriptors for other processes: how many there may be, and whether the system lets others have them.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use crate::messages::say;

const ONLY_PARENTS: &str = "this system lets only a process's parents have its descriptors (kernel.yama.ptrace_scope): if another \
                            process that is given tensors ends with `pidfd_getfd: Operation not permitted`, run with --solid";

/// Lets this process open as many files as it may allow itself: a GiB takes 512 descriptors, and 1,024 is a usual limit.
pub fn raise_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a place for the answer.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0;
    if known && limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: reads `limit`. If it is refused, the limit stays.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    }
}

/// Whether this process may open one more.
pub fn are_left() -> bool {
    let opened = File::open("/dev/null");
    !opened.is_err_and(|error| [Some(libc::EMFILE), Some(libc::ENFILE)].contains(&error.raw_os_error()))
}

/// Whether the call by which PyTorch gets descriptors of another process is there at all. Asked once, with one of our own: some
/// containers forbid it. Whether another process may use it on this one is not known before it does.
pub fn can_be_had(descriptor: &OwnedFd) -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        if only_parents_trace(&read("/proc/sys/kernel/yama/ptrace_scope"), &read("/proc/self/status")) {
            say(ONLY_PARENTS);
        }
        // SAFETY: takes numbers only.
        let process = opened(unsafe { libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(libc::getpid()), 0) });
        let number = libc::c_long::from(descriptor.as_raw_fd());
        let copy = process.and_then(|process| {
            // SAFETY: as above.
            opened(unsafe { libc::syscall(libc::SYS_pidfd_getfd, libc::c_long::from(process.as_raw_fd()), number, 0) })
        });
        let refused = [libc::EPERM, libc::EACCES, libc::ENOSYS];
        copy.err().and_then(|error| error.raw_os_error()).is_none_or(|why| !refused.contains(&why))
    })
}

/// A system call's answer: a new descriptor, or why there is none.
fn opened(answer: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(answer) {
        // SAFETY: the system opened it for us.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether Yama keeps processes of one user from each other, by its setting and what the system says of a process that may be one of
/// those that it trusts (CAP_SYS_PTRACE).
fn only_parents_trace(scope: &str, status: &str) -> bool {
    const TRACES_ALL: u64 = 1 << 19;
    let abilities = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    scope.trim().parse().is_ok_and(|scope: u32| scope > 0) && abilities.is_none_or(|have| have & TRACES_ALL == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yama_stands_between_processes_unless_it_is_off_or_they_are_trusted() {
        let user = "Name:\tpython\nCapEff:\t0000000000000000\n";
        let container = "Name:\tpython\nCapEff:\t00000000a80425fb\n";
        let root = "Name:\tpython\nCapEff:\t000001ffffffffff\n";
        assert_eq!([user, container, root].map(|who| only_parents_trace("1\n", who)), [true, true, false]);
        assert_eq!(["0\n", ""].map(|scope| only_parents_trace(scope, user)), [false, false], "no Yama is no hindrance");
    }
}
