//! What each mechanism and each tuned number is worth, on recorded jobs:
//!
//! ```text
//! cargo run --release -p stalloc-simulator --features ablation --example ablation -- FOLDER [JOB]... [--only NAME]...
//! ```
//!
//! FOLDER holds two recordings of each job, `JOB-1/rank0_dev0.trace` to plan from and `JOB-2/rank0_dev0.trace` to judge by,
//! as `bench/jobs.py --record` makes them. Every switch is turned off, every number halved and doubled, one at a time, each
//! in a process of its own, which prints one row. Prints a Markdown table.

use std::error::Error;
use std::path::Path;
use std::process::Command;

use stalloc_plan::Plan;
use stalloc_simulator::{Kind, Options, Replay, replay, smallest_capacity};
use stalloc_trace::{Input, Trace, open};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Steps that do not count: optimizer states are made, plans are learned.
const WARM_UP: usize = 5;

struct Job {
    plan: Plan,
    judge: Trace,
}

fn load(path: &Path) -> Result<Trace> {
    let Input::Recording(loaded) = open(path, &mut |_, _| {})? else { return Err("no recording".into()) };
    Ok(loaded.traces.into_iter().next().ok_or("no device in the trace")?)
}

fn job(folder: &Path, name: &str) -> Result<Job> {
    let trace = |seed: u32| load(&folder.join(format!("{name}-{seed}")).join("rank0_dev0.trace"));
    let (plan, _) =
        stalloc_synthesizer::plan(&trace(1)?, &stalloc_synthesizer::SynthesisOptions::default(), &mut |_, _| {})?;
    Ok(Job { plan, judge: trace(2)? })
}

/// The names of all jobs that were recorded twice.
fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(name) = name.strip_suffix("-2")
            && folder.join(format!("{name}-1")).exists()
        {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Sums over jobs, of one allocator.
#[derive(Default)]
struct Figures {
    capacity: Vec<f64>,
    remaps: f64,
    tight: Vec<f64>,
    tight_remaps: f64,
    planned: u64,
    requests: u64,
}

impl Figures {
    fn add(&mut self, job: &Job, kind: Kind) -> Result<()> {
        let peak = job.judge.peak_allocated();
        let options = Options { plan: Some(&job.plan), ..Options::default() };
        let smallest = smallest_capacity(&job.judge, kind, &options, &mut |_, _| {})?;
        self.capacity.push(smallest.map_or(f64::INFINITY, |bytes| bytes as f64 / peak as f64));
        let limited = Options { capacity: Some(peak + peak / 20), ..options.clone() };
        let limited = replay(&job.judge, kind, &limited, &mut |_, _| {})?;
        self.remaps += late_remaps(&limited);
        self.planned += limited.planned.unwrap_or(0);
        self.requests += job.judge.requests.len() as u64;
        let tight = replay(&job.judge, kind, &options, &mut |_, _| {})?;
        self.tight.push(peak as f64 / tight.peak_reserved as f64);
        self.tight_remaps += late_remaps(&tight);
        Ok(())
    }

    fn columns(&self) -> String {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let worst = self.capacity.iter().copied().fold(0.0, f64::max);
        format!(
            "{:.4} · {worst:.4} | {:.2} | {:.4} · {:.1} | {:.1} %",
            mean(&self.capacity),
            self.remaps,
            mean(&self.tight),
            self.tight_remaps,
            100.0 * self.planned as f64 / self.requests.max(1) as f64
        )
    }
}

/// Remaps a step after the first steps.
fn late_remaps(replay: &Replay) -> f64 {
    let late = replay.remaps_by_step.get(WARM_UP + 1..).unwrap_or_default();
    late.iter().sum::<u64>() as f64 / late.len().max(1) as f64
}

/// One row: with what the environment says.
fn measure(folder: &Path, names: &[String]) -> Result<String> {
    let (mut planned, mut auto) = (Figures::default(), Figures::default());
    for name in names {
        let job = job(folder, name)?;
        planned.add(&job, Kind::Stalloc)?;
        auto.add(&job, Kind::StallocAuto)?;
    }
    Ok(format!("{} | {}", planned.columns(), auto.columns()))
}

/// Other values for a number, or a switch.
fn others(value: &str) -> Vec<String> {
    if let Ok(on) = value.parse::<bool>() {
        return vec![(!on).to_string()];
    }
    let plain = value.replace('_', "");
    let number = match plain.split_once("<<") {
        Some((one, by)) => Some(one.trim().parse::<u64>().unwrap_or(1) << by.trim().parse::<u32>().unwrap_or(0)),
        None => plain.parse::<u64>().ok(),
    };
    match number {
        Some(number) => vec![(number / 2).to_string(), (number * 2).to_string()],
        // A share: twice as far from 1 or from 0, and half as far.
        None => plain.parse::<f64>().map_or_else(
            |_| Vec::new(),
            |share| {
                let (from, far) = if share > 0.5 { (1.0, share - 1.0) } else { (0.0, share) };
                vec![(from + far / 2.0).to_string(), (from + far * 2.0).to_string()]
            },
        ),
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("which folder?")?;
    let (mut jobs, mut only) = (Vec::new(), Vec::new());
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--only" => only.extend(arguments.next()),
            _ => jobs.push(argument),
        }
    }
    let folder = Path::new(&folder);
    if jobs.is_empty() {
        jobs = names(folder)?;
    }
    if std::env::var_os("STALLOC_ABLATION_ROW").is_some() {
        println!("{}", measure(folder, &jobs)?);
        return Ok(());
    }
    println!(
        "| {} jobs | planned: smallest capacity, mean · worst | remaps at 1.05 | with room: E · remaps | at offsets | auto: smallest \
         capacity, mean · worst | remaps at 1.05 | with room: E · remaps | at offsets |\n|---|---|---|---|---|---|---|---|---|",
        jobs.len()
    );
    let tables = [stalloc_allocator::TUNED, stalloc_synthesizer::TUNED];
    let mut settings = vec![(String::from("as it is"), None)];
    for &(name, value) in tables.into_iter().flatten() {
        if only.is_empty() || only.iter().any(|only| only == name) {
            settings.extend(
                others(value).into_iter().map(|other| (format!("`{name}` {value} → {other}"), Some((name, other)))),
            );
        }
    }
    for (label, setting) in settings {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(folder).args(&jobs).env("STALLOC_ABLATION_ROW", "1");
        if let Some((name, value)) = setting {
            command.env(format!("STALLOC_TUNE_{}", name.to_uppercase()), value);
        }
        let row = command.output()?;
        if !row.status.success() {
            return Err(format!("{label}: {}", String::from_utf8_lossy(&row.stderr)).into());
        }
        println!("| {label} | {} |", String::from_utf8_lossy(&row.stdout).trim());
    }
    Ok(())
}
