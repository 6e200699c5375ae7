//! The driver's time and what is held where the device has room, with steps of their real length:
//!
//! ```text
//! cargo run --release -p stalloc-simulator --example room -- [--device GIB] [--smallest] [--back at-once|late] TRACE:MILLISECONDS...
//! ```
//!
//! Prints a Markdown table, with --smallest the smallest capacity over the peak for both of ours, too. --back
//! says when what other streams use comes back: as it is freed, or when the step ends, not as recorded. The first five steps do not count for time: memory is mapped for the first time, plans are learned.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use stalloc_simulator::{Kind, Options, Replay, Return, replay, returning, smallest_capacity};
use stalloc_trace::{Input, Trace, open};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Steps that do not count.
const WARM_UP: usize = 5;

fn load(path: &Path) -> Result<Trace> {
    let Input::Recording(loaded) = open(path, &mut |_, _| {})? else { return Err("no recording".into()) };
    Ok(loaded.traces.into_iter().next().ok_or("no device in the trace")?)
}

/// The mean of a step, the first ones aside.
fn late<T: Copy + Into<f64>>(by_step: impl IntoIterator<Item = T>) -> f64 {
    let late: Vec<f64> = by_step.into_iter().skip(WARM_UP).map(Into::into).collect();
    late.iter().sum::<f64>() / late.len().max(1) as f64
}

fn cells(replay: &Replay, step: f64) -> String {
    let driver = late(replay.driver_ms_by_step.iter().copied());
    let first: f64 = replay.driver_ms_by_step.iter().take(WARM_UP).sum();
    let remaps = late(replay.remaps_by_step.iter().map(|&remaps| remaps as f64));
    let held = replay.peak_reserved as f64 / replay.peak_allocated as f64;
    format!("{held:.3} · {remaps:.2} · {:.2} % · {first:.0}", 100.0 * driver / step)
}

fn main() -> Result<()> {
    let (mut device, mut jobs, mut smallest, mut back) = (80u64, Vec::new(), false, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--device" => device = arguments.next().ok_or("how many GiB?")?.parse()?,
            "--smallest" => smallest = true,
            "--back" => match arguments.next().as_deref() {
                Some("at-once") => back = Some(Return::AtOnce),
                Some("late") => back = Some(Return::AtStepEnd),
                _ => return Err("at-once or late?".into()),
            },
            _ => jobs.push(argument),
        }
    }
    println!(
        "Each: held over the peak · remaps a step · driver time of a step · milliseconds of driver time in the first steps\n"
    );
    println!(
        "| job | step, ms | peak, MiB | native | expandable | open | auto | ns an operation, of each |\n|---|---|---|---|---|---|---|---|"
    );
    for job in jobs {
        let (path, step) = job.rsplit_once(':').ok_or("TRACE:MILLISECONDS")?;
        let step: f64 = step.parse()?;
        let mut trace = load(Path::new(path))?;
        trace.settings = None;
        trace = back.and_then(|when| returning(&trace, when)).unwrap_or(trace);
        let options = Options {
            capacity: Some(device << 30),
            step: Some(Duration::from_secs_f64(step / 1e3)),
            ..Options::default()
        };
        let name =
            Path::new(path).parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
        let mut nanoseconds = Vec::new();
        let mut row = vec![name, step.to_string(), (trace.peak_allocated() >> 20).to_string()];
        for kind in [Kind::Pytorch, Kind::PytorchExpandable, Kind::StallocOpen, Kind::StallocAuto] {
            let done = replay(&trace, kind, &options, &mut |_, _| {})?;
            nanoseconds.push(format!("{:.0}", done.ns_per_op));
            row.push(cells(&done, step));
        }
        row.push(nanoseconds.join(" · "));
        if smallest {
            for kind in [Kind::StallocOpen, Kind::StallocAuto] {
                let bytes =
                    smallest_capacity(&trace, kind, &Options { capacity: None, ..options.clone() }, &mut |_, _| {})?
                        .unwrap_or(0);
                row.push(format!("{:.4}", bytes as f64 / trace.peak_allocated() as f64));
            }
        }
        println!("| {} |", row.join(" | "));
    }
    Ok(())
}
