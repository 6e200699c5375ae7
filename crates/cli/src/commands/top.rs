//! `stalloc top`: a running job's memory, live, in the terminal. The job writes its figures once a second while somebody looks.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Deserialize;
use stalloc_common::PrivateFolder;

use crate::error::{Ending, Error};
use crate::output;

/// The folder, as `live.py` of the Python package names it, and the longest file in it that is read.
const FOLDER: &str = "top";
const LONGEST: u64 = 1 << 16;
/// A job answers within two of its seconds; one that computes without Python's lock takes longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Arguments of `stalloc top`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  stalloc top           the only job, or a list of them\n  stalloc top 4711      the job of this process\n\n\
                        Jobs under `stalloc run`, STALLOC_MODE or stalloc.on_out_of_memory() can be looked at. \
                        Ctrl-C ends it; the job notices nothing."
)]
pub struct Args {
    /// The job's process
    pid: Option<u32>,
    /// Print once, also in a terminal
    #[arg(long)]
    once: bool,
}

/// What a job says of itself.
#[derive(Default, Deserialize)]
#[serde(default)]
struct JobStatus {
    command: String,
    seconds: f64,
    written: f64,
    devices: Vec<DeviceStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DeviceStatus {
    device: u32,
    name: String,
    live: u64,
    peak: u64,
    held: u64,
    free: u64,
    total: u64,
    grew: i64,
    grew_seconds: f64,
    remaps: Option<u64>,
    plans: Option<u64>,
}

/// Shows a job until it ends.
pub fn run(args: &Args) -> Result<Ending, Error> {
    let folder = PrivateFolder::of_machine(FOLDER).map_err(|error| Error::message(error.to_string()))?;
    let jobs = jobs(&folder)?;
    let pid = match (args.pid, &jobs[..]) {
        (Some(pid), _) => pid,
        (None, [only]) => *only,
        (None, []) => {
            return Err(Error::message(
                "no job that runs under stalloc was found: start one with `stalloc run -- COMMAND`",
            ));
        }
        (None, several) => {
            for pid in several {
                let job = read(&folder, *pid).unwrap_or_default();
                output::line(&format!("{pid:>9}  {}", printable(&job.command)))?;
            }
            output::next("stalloc top PID", "shows one of them")?;
            return Ok(Ending::Done);
        }
    };
    let live = std::io::stdout().is_terminal() && !args.once;
    let mut last = f64::NEG_INFINITY;
    let mut asked = Instant::now();
    loop {
        if !is_alive(pid) {
            return if last > f64::NEG_INFINITY {
                output::line(&format!("process {pid} has ended")).map(|()| Ending::Done)
            } else {
                Err(Error::message(format!(
                    "process {pid} is none of a job under stalloc: `stalloc top` lists those there are"
                )))
            };
        }
        let look = |out: &mut dyn Write| out.write_all(b"");
        folder.write(&look_of(pid), look).map_err(|source| Error::write(folder.path(), source))?;
        sleep(Duration::from_millis(500));
        let Some(job) = read(&folder, pid).filter(|job| !job.devices.is_empty() && job.written > last) else {
            if asked.elapsed() > PATIENCE && !live {
                return Err(Error::message(format!(
                    "process {pid} does not answer: it has not used a GPU yet, or is not under stalloc"
                )));
            }
            continue;
        };
        last = job.written;
        asked = Instant::now();
        let frame = shown(pid, &job);
        if !live {
            output::line(frame.trim_end())?;
            return Ok(Ending::Done);
        }
        output::line(&format!("\u{1b}[H\u{1b}[J{frame}"))?;
    }
}

fn look_of(pid: u32) -> OsString {
    format!("{pid}.look").into()
}

fn read(folder: &PrivateFolder, pid: u32) -> Option<JobStatus> {
    serde_json::from_slice(&folder.read(pid.to_string().as_ref(), LONGEST).ok()?).ok()
}

/// The processes that can be looked at; what those that are gone left is removed.
fn jobs(folder: &PrivateFolder) -> Result<Vec<u32>, Error> {
    let names = folder.names().map_err(|source| Error::write(folder.path(), source))?;
    let mut found = Vec::new();
    for (name, _) in names {
        let text = name.to_string_lossy().into_owned();
        let Ok(pid) = text.trim_end_matches(".look").parse::<u32>() else { continue };
        if !is_alive(pid) {
            let _ = folder.remove(&name);
        } else if !text.ends_with(".look") {
            found.push(pid);
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn printable(text: &str) -> String {
    stalloc_common::printable(text).into_owned()
}

fn shown(pid: u32, job: &JobStatus) -> String {
    let mut out = format!("{pid}  {}  ({:.0} s)\n", printable(&job.command), job.seconds);
    for one in &job.devices {
        let share = |bytes: u64| output::percent(bytes as f64 / one.total.max(1) as f64);
        out += &format!(
            "\ndevice {} {}\n  live {:>10}   {:>7}   peak {}\n  held {:>10}   {:>7}   free {} of {}\n",
            one.device,
            printable(&one.name),
            output::bytes(one.live),
            share(one.live),
            output::bytes(one.peak),
            output::bytes(one.held),
            share(one.held),
            output::bytes(one.free),
            output::bytes(one.total),
        );
        let sign = if one.grew < 0 { "-" } else { "+" };
        out += &format!(
            "  live memory {sign}{} in the last {:.0} s\n",
            output::bytes(one.grew.unsigned_abs()),
            one.grew_seconds
        );
        if let Some(remaps) = one.remaps {
            let plans = one.plans.unwrap_or(0);
            out += &format!(
                "  stalloc: {} remaps, {}\n",
                output::count(remaps),
                if plans > 0 { "steps are planned" } else { "no plan" }
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_job_says_is_shown_and_odd_figures_do_no_harm() {
        let text = r#"{"command": "train.py\u001b[2J", "devices": [{"device": 1, "live": 1048576, "held": 2097152, "total": 0,
                       "grew": -9223372036854775808, "remaps": 3, "new": "?"}]}"#;
        let shown = shown(7, &serde_json::from_str(text).unwrap());
        assert!(shown.contains("live    1.0 MiB") || shown.contains("1.0 MiB"), "{shown}");
        assert!(shown.contains("3 remaps, no plan") && !shown.contains('\u{1b}'), "{shown}");
    }
}
