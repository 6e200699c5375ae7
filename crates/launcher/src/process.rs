//! Starts processes and waits for them.

use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::Error;
use crate::job::{Job, Rank};

/// How often processes are looked at.
const POLL: Duration = Duration::from_millis(40);

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
pub type Watch<'a> = &'a mut dyn FnMut(usize, usize);

struct Running {
    rank: Option<Rank>,
    child: Child,
    output: Option<PathBuf>,
}

/// Runs a process of `job` for each of `ranks`, at most `at_once` at a time, and waits for all. A single one shares
/// our terminal, its standard output going to standard error if `quiet`; several write `rank<R>.log` beside their
/// traces. An interrupt is left to the processes, which get it too; a request to terminate is passed on. After either
/// no further process starts: the ranks that still waited end with the signal's status.
///
/// # Errors
/// If a process cannot be started; those that run are ended then.
pub fn run(
    job: &Job,
    ranks: &[Option<Rank>],
    at_once: usize,
    quiet: bool,
    watch: Watch<'_>,
) -> Result<Vec<Ended>, Error> {
    let (terminate, interrupt) = (flag(SIGTERM)?, flag(SIGINT)?);
    let mut waiting = ranks.iter();
    let mut running: Vec<Running> = Vec::new();
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
        if terminate.swap(false, Ordering::Relaxed) {
            for process in &running {
                terminate_child(&process.child);
            }
            ended.extend(waiting.by_ref().map(|&rank| never_started(rank, SIGTERM)));
        }
        if interrupt.swap(false, Ordering::Relaxed) {
            ended.extend(waiting.by_ref().map(|&rank| never_started(rank, SIGINT)));
        }
        let mut index = 0;
        while index < running.len() {
            match running[index].child.try_wait() {
                Ok(Some(status)) => {
                    let Running { rank, output, .. } = running.remove(index);
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

/// A flag that `signal` sets from now on, in place of ending us.
fn flag(signal: c_int) -> Result<Arc<AtomicBool>, Error> {
    let flag = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(Error::Wait)?;
    Ok(flag)
}

fn never_started(rank: Option<Rank>, signal: c_int) -> Ended {
    Ended { rank, code: signal_code(signal), output: None }
}

fn start(job: &Job, rank: Option<Rank>, logged: bool, quiet: bool) -> Result<Running, Error> {
    let mut command = job.process(rank)?;
    let mut output = None;
    if let (true, Some(rank)) = (logged, rank) {
        let path = job.directory.join(format!("rank{}.log", rank.rank));
        let failed = |source| Error::Directory { path: path.clone(), source };
        let file = File::create(&path).map_err(failed)?;
        command.stdin(Stdio::null()).stderr(file.try_clone().map_err(failed)?).stdout(file);
        output = Some(path);
    } else if quiet {
        command.stdout(io::stderr());
    }
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command.spawn().map_err(|source| Error::Start { program, source })?;
    Ok(Running { rank, child, output })
}

fn terminate_child(child: &Child) {
    // The standard library can only kill; `kill` asks.
    let _ = std::process::Command::new("kill").arg("-TERM").arg(child.id().to_string()).status();
}

fn stop(running: &mut Vec<Running>) {
    for mut process in running.drain(..) {
        // Failure means that it has ended by itself.
        let _ = process.child.kill();
        let _ = process.child.wait();
    }
}

fn code(status: ExitStatus) -> u8 {
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
