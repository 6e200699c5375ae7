//! Runs a process that nobody looks at: in a group of its own, its output in a file, ended when it is told to.

use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::Error;
use crate::process::code;

/// How often the process is looked at.
const POLL: Duration = Duration::from_millis(20);

/// How long a process that is asked to end may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Signals that ask for an end.
const ENDS: [c_int; 3] = [SIGINT, SIGTERM, SIGHUP];

/// How a process in the background ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// By itself, with this status; 128 and the signal's number if a signal ended it.
    Ended(u8),
    /// It was ended because it was told to stop.
    Stopped,
    /// It was ended because it took too long.
    TimedOut,
}

/// A flag that becomes true when somebody wants an end: by Ctrl-C, or a signal that says so. The second Ctrl-C ends us at once.
pub fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in ENDS {
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// Runs `command` with its output in `log` until it ends, `stop` is set or `limit` is over; then it and what it started are ended.
pub fn run_in_background(
    command: &mut Command,
    log: &Path,
    limit: Duration,
    stop: &AtomicBool,
) -> Result<Background, Error> {
    let failed = |source| Error::Directory { path: log.to_owned(), source };
    let file = File::create_new(log).map_err(failed)?;
    command.stdin(Stdio::null()).stderr(file.try_clone().map_err(failed)?).stdout(file).process_group(0);
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command.spawn().map_err(|source| Error::Start { program, source })?;
    let started = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                // What it left behind would go on for nobody.
                signal(&child, Signal::KILL);
                return Ok(Background::Ended(code(status)));
            }
            Ok(None) if stop.load(Ordering::Relaxed) => {
                end(&mut child);
                return Ok(Background::Stopped);
            }
            Ok(None) if started.elapsed() >= limit => {
                end(&mut child);
                return Ok(Background::TimedOut);
            }
            Ok(None) => std::thread::sleep(POLL),
            Err(error) => {
                end(&mut child);
                return Err(Error::Wait(error));
            }
        }
    }
}

/// Ends a process and its group: politely first.
fn end(child: &mut Child) {
    signal(child, Signal::TERM);
    let asked = Instant::now();
    while asked.elapsed() < PATIENCE && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(POLL);
    }
    signal(child, Signal::KILL);
    let _ = child.wait();
}

/// Failure means that nobody of the group is left.
fn signal(child: &Child, signal: Signal) {
    let _ = kill_process_group(Pid::from_child(child), signal);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, limit: Duration, stop: bool) -> (Background, String) {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let ended = run_in_background(&mut command, &log, limit, &AtomicBool::new(stop)).unwrap();
        (ended, std::fs::read_to_string(log).unwrap())
    }

    #[test]
    fn output_and_status_of_a_process_are_kept() {
        let (ended, output) = run("echo out; echo err >&2; exit 7", Duration::from_secs(60), false);
        assert_eq!((ended, output.as_str()), (Background::Ended(7), "out\nerr\n"));
        assert_eq!(run("kill -9 $$", Duration::from_secs(60), false).0, Background::Ended(137));
    }

    #[test]
    fn a_process_that_is_stopped_or_takes_too_long_is_ended_with_what_it_started() {
        assert_eq!(run("sleep 600 & sleep 600", Duration::from_secs(60), true).0, Background::Stopped);
        assert_eq!(run("trap '' TERM; sleep 600 & wait; sleep 600", Duration::ZERO, false).0, Background::TimedOut);
    }

    #[test]
    fn what_cannot_be_started_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        let mut command = Command::new("/no/such/program");
        let error = run_in_background(&mut command, &directory.path().join("log"), Duration::ZERO, &stop).unwrap_err();
        assert!(error.to_string().contains("cannot run /no/such/program"), "{error}");
    }
}
