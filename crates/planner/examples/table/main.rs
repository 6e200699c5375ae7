//! The planner's table: ratio to the lower bound and time on each instance, beside what rival planners reach.
//!
//! `cargo run -p stalloc-planner --release --example table [-- NAME...]`, from the project's root: instances are read
//! from `../shared/data`, the synthetic ones are made here. With names, only the rows whose name contains one of them.

mod synthetic;

use std::path::Path;
use std::time::{Duration, Instant};

use stalloc_planner::{Effort, Instance, Options, check, solve};

/// Name, time limit in seconds, goal, and what rivals reach.
const FILES: [(&str, f64, &str, &str); 11] = [
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

fn main() {
    let only: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|o| name.contains(o.as_str()));
    println!("{:32} {:>8} {:>8} {:>7} {:>8}  {:7} rivals", "instance", "buffers", "ratio", "proven", "seconds", "goal");
    let data = Path::new("../shared/data");
    for (name, limit, goal, rivals) in FILES {
        if wanted(name) {
            match read_csv(&data.join("dsa").join(format!("{name}.csv"))) {
                Ok(instance) => row(name, &instance, limit, Effort::Full, goal, rivals),
                Err(error) => println!("{name:32} skipped: {error}"),
            }
        }
    }
    let synthetic: [(&str, usize, bool, f64, Effort, &str, &str); 4] = [
        ("synthetic training 10^5", 100_000, false, 1.0, Effort::Full, "1.0005", "idealloc 1.0194, online 1.0005"),
        (
            "synthetic training 10^6",
            1_000_000,
            false,
            10.0,
            Effort::Full,
            "1.0005",
            "idealloc out of memory, online 1.0005",
        ),
        ("synthetic variable 10^4", 10_000, true, 10.0, Effort::Full, "1.0020", "idealloc 1.0258, online 1.0060"),
        ("quick, synthetic 10^5", 100_000, false, 0.3, Effort::Quick, "1.0050", "-"),
    ];
    for (name, buffers, variable, limit, effort, goal, rivals) in synthetic {
        if wanted(name) {
            row(name, &synthetic::training(buffers, 1, variable), limit, effort, goal, rivals);
        }
    }
    println!("peak resident memory: {} MiB", resident().map_or("?".into(), |kib| (kib / 1024).to_string()));
}

fn row(name: &str, instance: &Instance, limit: f64, effort: Effort, goal: &str, rivals: &str) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(2);
    let options = Options { time_limit: Duration::from_secs_f64(limit), threads, effort, ..Options::default() };
    let start = Instant::now();
    let outcome = solve(instance, &options);
    let seconds = start.elapsed().as_secs_f64();
    match outcome {
        Ok(solution) => {
            if let Err(flaw) = check(instance, &solution) {
                println!("{name:32} WRONG: {flaw}");
                return;
            }
            let ratio = solution.peak as f64 / solution.lower_bound.max(1) as f64;
            let (buffers, proven) = (instance.buffers.len(), if solution.optimal { "yes" } else { "no" });
            println!("{name:32} {buffers:8} {ratio:8.5} {proven:>7} {seconds:8.3}  {goal:7} {rivals}");
        }
        Err(error) => println!("{name:32} no plan: {error}"),
    }
}

/// An instance without alignments: a header that names `lower`, `upper` and `size`, then a line for each buffer.
fn read_csv(path: &Path) -> Result<Instance, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split(',').map(str::trim).collect();
    let column = |name: &str| header.iter().position(|h| *h == name).ok_or(format!("no column {name}"));
    let (lower, upper, size) = (column("lower")?, column("upper")?, column("size")?);
    let mut buffers = Vec::new();
    for line in lines.filter(|l| !l.trim().is_empty()) {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let field = |k: usize| fields.get(k).and_then(|f| f.parse().ok()).ok_or(format!("not a number in {line:?}"));
        let (lower, upper, size) = (field(lower)?, field(upper)?, field(size)?);
        buffers.push(stalloc_planner::Buffer { lower, upper, size, alignment: 1, fixed: None });
    }
    Ok(Instance { buffers, period: None })
}

/// The most memory that this process ever held, in KiB, where the system says so.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
