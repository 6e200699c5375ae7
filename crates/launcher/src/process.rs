//! Starts processes and waits for them.

use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::flag;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;

use crate::job::{Job, Rank};
use crate::{Error, options};

/// How often processes are looked at.
const POLL: Duration = Duration::from_millis(40);

/// Signals that are meant for the job: those that would end us, and those that schedulers send before they do.
const PASSED_ON: [c_int; 7] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM];
/// Those of them that ask for an end.
const ENDS: [c_int; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// How a process ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its rank, if it ran as one of several.
    pub rank: Option<Rank>,
    /// Its exit status; 128 and the signal's number if a signal ended it, as shells say it.
    pub code: u8,
    /// What it printed, if that did not go to the terminal.
    pub output: Option<PathBuf>,
}

/// Is told now and then how many processes run and how many have ended.
pub type ProcessWatch<'a> = &'a mut dyn FnMut(usize, usize);

struct RunningProcess {
    rank: Option<Rank>,
    child: Child,
    output: Option<PathBuf>,
}

/// Runs a process of `job` for each of `ranks`, at most `at_once` at a time, and waits for all. A single one shares
/// our terminal, its standard output going to standard error if `quiet`; several write `rank<R>.log` next to their
/// traces. A signal that a process sends us is passed on; one of the terminal's keys reaches the processes by itself.
/// After one that asks for an end no further process starts: the ranks that still waited end with its status.
///
/// # Errors
/// If a process cannot be started; those that run are ended then.
pub fn run(
    job: &Job,
    ranks: &[Option<Rank>],
    at_once: usize,
    quiet: bool,
    watch: ProcessWatch<'_>,
) -> Result<Vec<Ended>, Error> {
    let ended = run_all(job, ranks, at_once, quiet, watch);
    options::remove(job);
    ended
}

fn run_all(
    job: &Job,
    ranks: &[Option<Rank>],
    at_once: usize,
    quiet: bool,
    watch: ProcessWatch<'_>,
) -> Result<Vec<Ended>, Error> {
    let _listening = Listening::begin().map_err(Error::Wait)?;
    let mut signals = SignalsInfo::<WithOrigin>::new(PASSED_ON).map_err(Error::Wait)?;
    let mut waiting = ranks.iter();
    let mut running: Vec<RunningProcess> = Vec::new();
    let mut ended = Vec::new();
    loop {
        while running.len() < at_once.max(1) {
            let Some(&rank) = waiting.next() else { break };
            match start(job, rank, ranks.len() > 1, quiet) {
                Ok(process) => running.push(process),
                Err(error) => {
                    stop(&mut running);
                    return Err(error);
                }
            }
        }
        if running.is_empty() {
            return Ok(ended);
        }
        watch(running.len(), ended.len());
        std::thread::sleep(POLL);
        for origin in signals.pending() {
            if origin.process.is_some() {
                running.iter().for_each(|process| pass_on(origin.signal, &process.child));
            }
            if ENDS.contains(&origin.signal) {
                ended.extend(waiting.by_ref().map(|&rank| never_started(rank, origin.signal)));
            }
        }
        let mut index = 0;
        while index < running.len() {
            match running[index].child.try_wait() {
                Ok(Some(status)) => {
                    let RunningProcess { rank, output, .. } = running.remove(index);
                    ended.push(Ended { rank, code: code(status), output });
                }
                Ok(None) => index += 1,
                Err(error) => {
                    stop(&mut running);
                    return Err(Error::Wait(error));
                }
            }
        }
    }
}

/// While this lives, signals are for the processes; before and after, they do what they do by default. A handler that was
/// installed once stays, and would swallow them.
struct Listening(Arc<AtomicBool>);

impl Listening {
    fn begin() -> io::Result<Self> {
        static IS_OVER: OnceLock<Arc<AtomicBool>> = OnceLock::new();
        if IS_OVER.get().is_none() {
            let is_over = Arc::new(AtomicBool::new(false));
            for signal in PASSED_ON {
                flag::register_conditional_default(signal, Arc::clone(&is_over))?;
            }
            let _ = IS_OVER.set(is_over);
        }
        let is_over = IS_OVER.get().map_or_else(Arc::default, Arc::clone);
        is_over.store(false, Ordering::Relaxed);
        Ok(Listening(is_over))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Becomes the process of one rank, where nothing is left to do after it: signals, terminal and exit status are its own
/// then. Returns only if that fails.
pub fn replace(job: &Job, rank: Option<Rank>) -> Error {
    match job.process(rank) {
        Ok(mut command) => {
            let program = command.get_program().to_string_lossy().into_owned();
            Error::Start { program, source: command.exec() }
        }
        Err(error) => error,
    }
}

fn never_started(rank: Option<Rank>, signal: c_int) -> Ended {
    Ended { rank, code: signal_code(signal), output: None }
}

fn start(job: &Job, rank: Option<Rank>, logged: bool, quiet: bool) -> Result<RunningProcess, Error> {
    let mut command = job.process(rank)?;
    let mut output = None;
    if let (true, Some(rank)) = (logged, rank) {
        let path = job.directory.join(format!("rank{}.log", rank.rank));
        let failed = |source| Error::Directory { path: path.clone(), source };
        // A link of that name may lead to a file that is to stay.
        let _ = std::fs::remove_file(&path);
        let file = File::create_new(&path).map_err(failed)?;
        command.stdin(Stdio::null()).stderr(file.try_clone().map_err(failed)?).stdout(file);
        output = Some(path);
    } else if quiet {
        command.stdout(io::stderr());
    }
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command.spawn().map_err(|source| Error::Start { program, source })?;
    Ok(RunningProcess { rank, child, output })
}

/// Sends a signal to a child that has not been waited for: its number is no other process's.
fn pass_on(signal: c_int, child: &Child) {
    if let Some(signal) = Signal::from_named_raw(signal) {
        // Failure means that it has ended by itself.
        let _ = kill_process(Pid::from_child(child), signal);
    }
}

fn stop(running: &mut Vec<RunningProcess>) {
    for mut process in running.drain(..) {
        // Failure means that it has ended by itself.
        let _ = process.child.kill();
        let _ = process.child.wait();
    }
}

/// A process's exit status; 128 and the signal's number if a signal ended it.
pub(crate) fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(2),
        (None, Some(signal)) => signal_code(signal),
        (None, None) => 2,
    }
}

/// The exit status of a process that a signal ended, as shells say it.
fn signal_code(signal: c_int) -> u8 {
    u8::try_from(128 + signal).unwrap_or(2)
}
