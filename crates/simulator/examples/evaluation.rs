//! Prints what each allocator makes of recordings, as a table: plans each trace and replays it through all of them.
//!
//! `cargo run --release -p stalloc-simulator --example evaluation -- FILE...`

use std::path::Path;
use std::process::ExitCode;

use stalloc_simulator::{Comparison, Kind, Options, compare};
use stalloc_trace::{Input, Trace, open};

fn main() -> ExitCode {
    let names = Kind::ALL.map(Kind::name).join(" | ");
    println!("| trace | device | requests | peak allocated MiB | recorded MiB | {names} |");
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let mut failed = false;
    for path in std::env::args().skip(1) {
        let path = Path::new(&path);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.trim_end_matches(".zst").trim_end_matches(".gz").trim_end_matches(".pickle");
        let traces = match open(path, &mut |_, _| {}) {
            Ok(Input::Recording(recording)) => recording.traces,
            Ok(_) => Vec::new(),
            Err(error) => {
                eprintln!("{error}");
                failed = true;
                Vec::new()
            }
        };
        for trace in traces {
            match evaluate(&trace) {
                Ok(comparison) => row(name, &comparison),
                Err(error) => {
                    eprintln!("{name}, device {}: {error}", trace.device);
                    failed = true;
                }
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn evaluate(trace: &Trace) -> Result<Comparison, Box<dyn std::error::Error>> {
    let (plan, _) = stalloc_synthesizer::plan(trace, &stalloc_synthesizer::Options::default(), &mut |_, _| {})?;
    let options = Options { plan: Some(&plan), ..Options::default() };
    Ok(compare(trace, &Kind::ALL, &options, &mut |_, _, _| {})?)
}

fn row(name: &str, comparison: &Comparison) {
    let mib = |bytes: u64| format!("{:.0}", bytes as f64 / f64::from(1 << 20));
    let recorded = comparison.actual_peak_reserved.map_or_else(String::new, mib);
    print!("| {name} | {} | {} | ", comparison.device, comparison.requests);
    print!("{} | {recorded} |", mib(comparison.peak_allocated));
    for result in &comparison.results {
        print!(" {} ({:.1} %) |", mib(result.peak_reserved), 100.0 * result.efficiency);
    }
    println!();
}
