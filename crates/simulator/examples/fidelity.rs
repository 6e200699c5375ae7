//! Prints how the code of PyTorch's caching allocator compares with what snapshots recorded.
//!
//! `cargo run --release -p stalloc-simulator --example fidelity -- [--memory-limit BYTES] FILE...`

use std::path::Path;
use std::process::ExitCode;

use stalloc_simulator::fidelity::compare;
use stalloc_trace::{Input, open};

fn main() -> ExitCode {
    println!(
        "| file | device | rules | segments | starts | requests | segment events | empty_cache | peak reserved | result |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let mut exact = true;
    let mut arguments = std::env::args().skip(1);
    let mut limit = None;
    while let Some(path) = arguments.next() {
        if path == "--memory-limit" {
            limit = arguments.next().and_then(|bytes| bytes.parse().ok());
            continue;
        }
        let path = Path::new(&path);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.trim_end_matches(".zst").trim_end_matches(".gz").trim_end_matches(".pickle");
        match open(path, &mut |_, _| {}) {
            Ok(Input::Recording(recording)) => {
                for trace in recording.traces {
                    exact &= row(name, &trace, limit);
                }
            }
            Ok(_) => println!("| {name} | holds no recording |"),
            Err(error) => {
                eprintln!("{error}");
                exact = false;
            }
        }
    }
    if exact { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn row(name: &str, trace: &stalloc_trace::Trace, limit: Option<u64>) -> bool {
    let result = match compare(trace, limit) {
        Ok(result) => result,
        Err(error) => {
            println!("| {name} | {} | {error} |", trace.device);
            return false;
        }
    };
    let verdict = match &result.difference {
        None => "exact".to_owned(),
        Some((time, difference)) => format!("event {time} of {}: {difference}", trace.events.len()),
    };
    println!(
        "| {name} | {} | {} | {} | {} | {} | {} | {} | {} | {verdict} |",
        trace.device,
        result.dialect.name(),
        if result.expandable { "expandable" } else { "native" },
        if result.seeded { "running" } else { "empty" },
        result.requests,
        result.segment_events,
        result.emptied,
        result.peak_reserved,
    );
    result.is_exact()
}
