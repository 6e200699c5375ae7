//! The planner's table: ratio to the lower bound and time on each instance, compared with what rival planners reach.
//!
//! `cargo run -p stalloc-planner --release --example table [-- NAME...]`, from the project's root: instances and
//! training traces are read from the folder that `STALLOC_RECORDINGS` names, the synthetic ones are made here. With names, only the rows whose
//! name contains one of them.

mod read;
mod synthetic;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use stalloc_planner::{Effort, Instance, SolveOptions, check, solve};

/// Name, time limit in seconds, goal, and what rivals reach.
type Row = (&'static str, f64, &'static str, &'static str);

const FILES: [Row; 11] = [
    ("minimalloc_A", 3.0, "1.0000", "MiniMalloc 1.0000 in 12.2 s, idealloc 1.290"),
    ("minimalloc_C", 3.0, "1.0000", "MiniMalloc 1.0000 in 0.05 s, idealloc 1.364"),
    ("minimalloc_E", 3.0, "1.0000", "MiniMalloc 1.0000 in 7.1 s, idealloc 1.335"),
    ("minimalloc_F", 3.0, "1.0000", "MiniMalloc 1.0000 in 11.8 s, idealloc 1.316"),
    ("minimalloc_H", 3.0, "1.0000", "MiniMalloc 1.0000 in 4.1 s, idealloc 1.264"),
    ("minimalloc_K", 3.0, "1.0000", "MiniMalloc 1.0000 in 1.2 s, idealloc 1.277"),
    ("minimalloc_J", 60.0, "< 1.06", "MiniMalloc 1.0600 in 3.2 s, idealloc 1.284"),
    ("resnet50", 0.2, "1.0000", "MiniMalloc 1.0000 in 1.6 s, idealloc 1.0029"),
    ("G_1", 0.2, "1.0000", "MiniMalloc 1.0000 in 10.7 s, idealloc 1.0013"),
    ("pangu_2.6B", 60.0, "1.0020", "size-first-fit 1.0076, idealloc 1.0218 in 100 s"),
    ("Y_1", 60.0, "1.0010", "size-first-fit 1.0036 in 8 s, idealloc 1.0036 in 171 s"),
];

/// Buffers, whether sizes vary with the sequence length, effort, and the row.
const SYNTHETIC: [(usize, bool, Effort, Row); 4] = [
    (
        100_000,
        false,
        Effort::Full,
        ("synthetic training 10^5", 1.0, "1.0005", "idealloc 1.0194, online first fit 1.0005"),
    ),
    (
        1_000_000,
        false,
        Effort::Full,
        ("synthetic training 10^6", 10.0, "1.0005", "idealloc out of memory, online first fit 1.0005"),
    ),
    (
        10_000,
        true,
        Effort::Full,
        ("synthetic variable 10^4", 10.0, "1.0020", "idealloc 1.0258, online first fit 1.0060"),
    ),
    (100_000, false, Effort::Quick, ("quick, synthetic 10^5", 0.3, "1.0050", "-")),
];

/// Seconds for a training trace.
const TRACE_LIMIT: f64 = 2.0;

fn main() {
    let only: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|o| name.contains(o.as_str()));
    let data = PathBuf::from(std::env::var_os("STALLOC_RECORDINGS").unwrap_or_default());
    println!(
        "{:34} {:>8} {:>8} {:>7} {:>8} {:>8}  {:7} rivals",
        "instance", "buffers", "ratio", "proven", "seconds", "CPU", "goal"
    );
    for row in FILES.into_iter().filter(|row| wanted(row.0)) {
        match read::csv(&data.join("dsa").join(format!("{}.csv", row.0))) {
            Ok(instance) => print(row, &instance, Effort::Full),
            Err(error) => println!("{:34} skipped: {error}", row.0),
        }
    }
    for (buffers, variable, effort, row) in SYNTHETIC.into_iter().filter(|(.., row)| wanted(row.0)) {
        print(row, &synthetic::training(buffers, 1, variable), effort);
    }
    for path in read::traces(&data.join("traces")) {
        let name = read::name(&path);
        if wanted(&name)
            && let Err(error) = trace(&path, &name)
        {
            println!("{name:34} skipped: {error}");
        }
    }
    println!("peak resident memory: {} MiB", read::resident().map_or("?".into(), |kib| (kib / 1024).to_string()));
}

fn options(limit: f64, effort: Effort) -> SolveOptions {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(2);
    SolveOptions { time_limit: Duration::from_secs_f64(limit), threads, effort, ..SolveOptions::default() }
}

fn print((name, limit, goal, rivals): Row, instance: &Instance, effort: Effort) {
    let (start, cpu) = (Instant::now(), read::cpu_seconds());
    let outcome = solve(instance, &options(limit, effort));
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), read::cpu_seconds() - cpu);
    match outcome {
        Ok(solution) => {
            if let Err(flaw) = check(instance, &solution) {
                println!("{name:34} WRONG: {flaw}");
                return;
            }
            let ratio = solution.peak as f64 / solution.lower_bound.max(1) as f64;
            let (buffers, proven) = (instance.buffers.len(), if solution.optimal { "yes" } else { "no" });
            println!("{name:34} {buffers:8} {ratio:8.5} {proven:>7} {seconds:8.3} {cpu:8.2}  {goal:7} {rivals}");
        }
        Err(error) => println!("{name:34} no plan: {error}"),
    }
}

/// Plans a training trace the whole way: its steps, which are cyclic, and what runs once around them.
fn trace(path: &Path, name: &str) -> Result<(), String> {
    let input = stalloc_trace::open(path, &mut |_, _| {}).map_err(|error| error.to_string())?;
    let stalloc_trace::Input::Recording(recording) = input else { return Ok(()) };
    let planner = options(TRACE_LIMIT, Effort::Full);
    let options = stalloc_synthesizer::SynthesisOptions { planner };
    for trace in recording.traces.iter().filter(|trace| !trace.requests.is_empty()) {
        let (start, cpu) = (Instant::now(), read::cpu_seconds());
        let planned = stalloc_synthesizer::plan(trace, &options, &mut |_, _| {});
        let (seconds, cpu) = (start.elapsed().as_secs_f64(), read::cpu_seconds() - cpu);
        let (plan, summary) = planned.map_err(|error| error.to_string())?;
        let verdict = plan.check().and(plan.check_against(trace));
        if !verdict.ok {
            println!("{name:34} WRONG: {:?}", verdict.problems);
            continue;
        }
        let planned = summary.planned;
        let proven = if planned.peak == planned.lower_bound { "yes" } else { "no" };
        println!(
            "{name:34} {:8} {:8.5} {proven:>7} {seconds:8.3} {cpu:8.2}  {:7} -",
            planned.requests, planned.ratio, "1.0000"
        );
    }
    Ok(())
}
