//! `stalloc info`: what a file holds, and whether two recordings ask for the same memory.

mod compare;
mod plan;

use std::path::{Path, PathBuf};

use stalloc_jobs::describing::{self, DeviceInfo};
use stalloc_jobs::inputs;
use stalloc_trace::{Input, InstanceTable, Recording};

use crate::error::{Ending, Error};
use crate::input;
use crate::output::{self, Table};
use crate::progress::Terminal;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  stalloc info job.pickle                  devices, requests, steps, peaks\n  \
                        stalloc info job.plan                    what a plan holds\n  \
                        stalloc info --compare a.trace b.trace   do two runs ask for the same memory?\n\n\
                        Exit status: 0 if done, 1 if with --compare they differ, 2 if a file cannot be read.")]
pub struct Args {
    /// A snapshot, a trace, a folder of traces, a mem_log, a CSV instance or a plan
    #[arg(required = true, num_args = 1..=2, value_name = "INPUT", value_parser = input::parser())]
    inputs: Vec<PathBuf>,
    /// Compare two recordings request by request
    #[arg(long)]
    compare: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Does it.
pub fn run(args: &Args) -> Result<Ending, Error> {
    match (args.inputs.as_slice(), args.compare) {
        ([a, b], true) => compare::run(a, b, args.json),
        (_, true) => Err(Error::message("--compare takes two recordings: stalloc info --compare A B")),
        ([path], false) => {
            if inputs::is_plan(path) {
                plan::print(path, &inputs::plan(path)?, args.json)?;
                return Ok(Ending::Done);
            }
            match inputs::open(path, &mut Terminal::new())? {
                Input::Recording(recording) => print_recording(path, &recording, args.json)?,
                Input::Instance(instance) => print_instance(path, &instance, args.json)?,
            }
            Ok(Ending::Done)
        }
        _ => Err(Error::message("info takes one input, or two with --compare")),
    }
}

fn print_recording(path: &Path, recording: &Recording, json: bool) -> Result<(), Error> {
    let mut info = describing::recording(recording);
    info.try_arenas(recording, &mut Terminal::new());
    if json {
        return output::json(&info);
    }
    output::line(&format!("{} of {} device(s)", info.format, info.devices.len()))?;
    let header = [
        "device",
        "events",
        "requests",
        "live before",
        "streams",
        "steps",
        "peak allocated",
        "peak reserved",
        "efficiency",
    ];
    let mut table = Table::new(&header);
    for device in &info.devices {
        let reserved = device.actual_peak_reserved;
        let used = |reserved: u64| output::percent(device.peak_allocated as f64 / reserved.max(1) as f64);
        table.row(vec![
            device.device.to_string(),
            output::count(device.events),
            output::count(device.requests),
            output::count(device.live_before),
            output::count(device.streams),
            output::count(device.steps),
            output::bytes(device.peak_allocated),
            reserved.map_or("unknown".to_owned(), output::bytes),
            reserved.map_or(String::new(), used),
        ]);
    }
    table.print()?;
    for device in &info.devices {
        print_device(device, info.devices.len() > 1)?;
    }
    if !info.gives_away.is_empty() {
        output::line(&format!("  sent to others, it gives away: {}", info.gives_away.join("; ")))?;
    }
    output::next(&format!("stalloc report {}", path.display()), "who holds the memory, and what would need less")
}

/// Places where values are read that are shown.
const READS_SHOWN: usize = 5;

fn print_device(device: &DeviceInfo<'_>, named: bool) -> Result<(), Error> {
    let mut lines = Vec::new();
    lines.extend(device.notes.iter().cloned());
    if let Some(arena) = &device.arena {
        let figure = |reserved: u64| {
            let used = output::percent(device.peak_allocated as f64 / reserved.max(1) as f64);
            format!("{} ({used})", output::bytes(reserved))
        };
        let (open, planned) = (figure(arena.open), figure(arena.planned));
        lines.push(format!("stalloc would reserve {open} with no plan, {planned} with one from this recording"));
    }
    if let Some(seconds) = device.seconds {
        lines.push(format!("recorded over {seconds:.2} s"));
    }
    if device.out_of_memory > 0 {
        lines.push(format!("requests that failed for lack of memory: {}", device.out_of_memory));
    }
    lines.extend(device.gpu_class.map(|class| format!("GPU: {}", class.text())));
    if let Some(settings) = &device.settings {
        let mut set = Vec::new();
        set.extend(settings.expandable_segments.then(|| "expandable segments".to_owned()));
        set.extend(settings.max_split_size.map(|size| format!("max split size {}", output::bytes(size))));
        if settings.garbage_collection_threshold > 0.0 {
            set.push(format!("garbage collection from {}", output::percent(settings.garbage_collection_threshold)));
        }
        set.extend((!settings.roundup_power2_divisions.is_empty()).then(|| "power-of-2 rounding".to_owned()));
        lines.push(format!(
            "allocator settings: {}",
            if set.is_empty() { "default".to_owned() } else { set.join(", ") }
        ));
    }
    lines.extend(device.metadata.iter().map(|(key, value)| format!("{key}: {value}")));
    let (deciding, harmless): (Vec<_>, Vec<_>) = device.host_reads.iter().partition(|read| read.may_change_memory);
    for read in deciding.iter().take(READS_SHOWN) {
        let what = match read.guessed {
            Some(most) => format!("guesses a size that a GPU computes, at most {} elements", output::count(most)),
            None => "reads zeros in place of what may decide about memory".to_owned(),
        };
        let (count, bytes) = (output::count(read.count), output::bytes(read.bytes));
        lines.push(format!("{what}, {count} times, {bytes} in all: {}", read.place));
    }
    if deciding.len() > READS_SHOWN {
        lines.push(format!("and at {} other places", deciding.len() - READS_SHOWN));
    }
    if !harmless.is_empty() {
        let times: u64 = harmless.iter().map(|read| read.count).sum();
        lines.push(format!("other reads of the device: {} times at {} places", output::count(times), harmless.len()));
    }
    for line in lines {
        let name = if named { format!("device {}: ", device.device) } else { String::new() };
        output::line(&format!("  {name}{line}"))?;
    }
    Ok(())
}

fn print_instance(path: &Path, instance: &InstanceTable, json: bool) -> Result<(), Error> {
    let info = describing::instance(instance);
    if json {
        return output::json(&info);
    }
    output::line(&format!("DSA instance of {} buffers", output::count(info.buffers)))?;
    output::line(&format!(
        "  lower bound: {} ({} bytes)",
        output::bytes(info.lower_bound),
        output::count(info.lower_bound)
    ))?;
    output::line(&format!("  times: {} to {}; largest buffer: {}", info.first, info.end, output::bytes(info.largest)))?;
    output::line(&format!("  with an alignment: {}; with an offset: {}", info.aligned, info.placed))?;
    output::next(&format!("stalloc plan {} -o solved.csv", path.display()), "chooses the offsets")
}
