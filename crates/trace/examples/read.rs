//! Reads a file and prints what it took: `cargo run --release --example read -- FILE`.

use std::path::Path;
use std::time::Instant;

use stalloc_trace::{Input, open};

fn main() {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: read FILE");
        return;
    };
    let start = Instant::now();
    match open(Path::new(&path), &mut |_, _| {}) {
        Ok(Input::Recording(recording)) => {
            let events: usize = recording.traces.iter().map(|trace| trace.events.len()).sum();
            let requests: usize = recording.traces.iter().map(|trace| trace.requests.len()).sum();
            println!("{events} events, {requests} requests, warnings {:?}", recording.warnings);
        }
        Ok(Input::Instance(instance)) => println!("{} buffers", instance.rows.len()),
        Err(error) => println!("{error}"),
    }
    println!("{:.2} s", start.elapsed().as_secs_f64());
    // Linux says what the process has used; elsewhere nothing is printed.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(line) = status.lines().find(|line| line.starts_with("VmHWM")) {
        println!("{line}");
    }
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks: Vec<f64> = stat.split(' ').skip(13).take(2).filter_map(|ticks| ticks.parse().ok()).collect();
    if let [user, system] = ticks[..] {
        println!("{:.2} s of user time, {:.2} s of system time", user / 100.0, system / 100.0);
    }
}
