//! The planner on tight instances, most with an optimum known by construction.
//!
//! `cargo run -p stalloc-planner --release --example tight -- [--limit SECONDS] [--work UNITS] [--threads N]
//! [--seeds N] [--quick] [--write FOLDER] NAME...`, where a name is `cut:5000`, `slack15:300`, `chain:1000`, `pools:1000`
//! (`pools:1000:2` for another seed than 1), `stack:5000`, `micro_batches:5000`, `recomputation:5000` or the path
//! of an instance's CSV. With `--write`, each instance is written as CSV, with the offsets of a best solution where one is known, instead.

mod generate;
mod nested;
mod noisy;
#[allow(dead_code, reason = "the table reads more")]
#[path = "../table/read.rs"]
mod read;

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use generate::Known;
use stalloc_planner::{Effort, SolveOptions, check, solve};

fn main() {
    let mut options = SolveOptions { time_limit: Duration::from_secs(2), ..SolveOptions::default() };
    let (mut seeds, mut write) = (1, None);
    let mut words = std::env::args().skip(1);
    println!(
        "{:34} {:>8} {:>4} {:>8} {:>8} {:>7} {:>8} {:>8} {:>9}",
        "instance", "buffers", "seed", "optimum", "bound", "proven", "seconds", "CPU", "work/10^6"
    );
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|value| value.parse::<f64>().ok()).unwrap_or(0.0);
        match word.as_str() {
            "--limit" => options.time_limit = Duration::try_from_secs_f64(number()).unwrap_or_default(),
            "--work" => options.work_limit = Some(number() as u64),
            "--threads" => options.threads = number() as usize,
            "--seeds" => seeds = number() as u64,
            "--quick" => options.effort = Effort::Quick,
            "--write" => write = words.next(),
            name => {
                let unknown = |instance| Known { instance, offsets: vec![], optimum: 0 };
                let known = match generate::by_name(name)
                    .or_else(|| noisy::by_name(name))
                    .or_else(|| nested::by_name(name).map(unknown))
                {
                    Some(known) => Ok(known),
                    None => read::csv(Path::new(name)).map(unknown),
                };
                let outcome = known.and_then(|known| match &write {
                    Some(folder) => save(&known, &Path::new(folder).join(name.replace(':', "_")).with_extension("csv")),
                    None => {
                        (0..seeds).for_each(|seed| show(name, &known, &SolveOptions { seed, ..options }));
                        Ok(())
                    }
                });
                if let Err(error) = outcome {
                    println!("{name:34} skipped: {error}");
                }
            }
        }
    }
    println!("peak resident memory: {} MiB", read::resident().map_or("?".into(), |kib| (kib / 1024).to_string()));
}

fn save(known: &Known, path: &Path) -> Result<(), String> {
    let write = || {
        let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
        let known_offset = |id: usize| known.offsets.get(id).map(|offset| format!(",{offset}")).unwrap_or_default();
        writeln!(out, "id,lower,upper,size{}", if known.offsets.is_empty() { "" } else { ",offset" })?;
        for (id, b) in known.instance.buffers.iter().enumerate() {
            writeln!(out, "{id},{},{},{}{}", b.lower, b.upper, b.size, known_offset(id))?;
        }
        out.flush()
    };
    write().map_err(|error| format!("{}: {error}", path.display()))
}

fn show(name: &str, known: &Known, options: &SolveOptions) {
    let name = Path::new(name).file_stem().map_or(name.into(), |stem| stem.to_string_lossy());
    let (start, cpu) = (Instant::now(), read::cpu_seconds());
    let outcome = solve(&known.instance, options);
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), read::cpu_seconds() - cpu);
    let solution = match outcome {
        Ok(solution) => solution,
        Err(error) => return println!("{name:34} no plan: {error}"),
    };
    if let Err(flaw) = check(&known.instance, &solution) {
        return println!("{name:34} WRONG: {flaw}");
    }
    let ratio = |to: u64| if to == 0 { "-".to_owned() } else { format!("{:.5}", solution.peak as f64 / to as f64) };
    println!(
        "{name:34} {:8} {:4} {:>8} {:>8} {:>7} {seconds:8.3} {cpu:8.2} {:9.1}",
        known.instance.buffers.len(),
        options.seed,
        ratio(known.optimum),
        ratio(solution.lower_bound),
        if solution.optimal { "yes" } else { "no" },
        solution.work as f64 / 1e6
    );
}
