//! `nvidia-smi` in a dry run: the questions that scripts ask it, answered for the GPU that is stood in for.
//!
//! Nothing runs on the GPU and each process has all of it for itself, so no memory is used and no process is listed.

use std::fmt::Write;

use crate::identity::{DRIVER, bus_name, uuid_name};
use stalloc_common::settings;

use crate::{Gpu, MIB, find};

/// The command's name.
pub const COMMAND: &str = "nvidia-smi";

/// The CUDA that the driver supports, in the table's head.
const CUDA: &str = "13.0";

/// What is printed, and the exit status: 2 for what is not answered, as from the real one.
#[derive(Debug, PartialEq, Eq)]
pub struct SmiOutput {
    /// For standard output.
    pub text: String,
    /// 0, 2 or 6 (no such device).
    pub status: u8,
}

/// Answers for the GPU that the environment names.
#[must_use]
pub fn answer_in_environment(arguments: &[String]) -> SmiOutput {
    let devices = settings::DRYRUN_DEVICES.number().unwrap_or(1);
    match find(&settings::DRYRUN_GPU.text().unwrap_or_else(|| "h100-80gb".to_owned())) {
        Ok(mut gpu) => {
            if let Some(mebibytes) = settings::DRYRUN_TOTAL_MIB.number::<u64>() {
                gpu.total = mebibytes.saturating_mul(MIB);
            }
            answer(arguments, &gpu, devices)
        }
        Err(error) => SmiOutput { text: format!("{error}\n"), status: 2 },
    }
}

/// Answers for `devices` GPUs of one model.
#[must_use]
pub fn answer(arguments: &[String], gpu: &Gpu, devices: u32) -> SmiOutput {
    let mut fields = None;
    let mut has_units = true;
    let mut has_header = true;
    let mut lists = false;
    let mut processes = false;
    let mut wanted: Vec<u32> = (0..devices).collect();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let (name, value) =
            argument.split_once('=').map_or((argument.as_str(), None), |(name, value)| (name, Some(value)));
        let mut value = || value.map(str::to_owned).or_else(|| rest.next().cloned()).unwrap_or_default();
        match name {
            "-L" | "--list-gpus" => lists = true,
            "--query-gpu" => fields = Some(value()),
            "--query-compute-apps" | "--query-accounted-apps" => {
                processes = true;
                fields = Some(value());
            }
            "--format" => {
                let format = value();
                has_units = !format.contains("nounits");
                has_header = !format.contains("noheader");
            }
            "-i" | "--id" => match chosen(&value(), devices) {
                Some(ids) => wanted = ids,
                None => return SmiOutput { text: "No devices were found\n".to_owned(), status: 6 },
            },
            _ => {
                let text =
                    format!("Invalid combination of input arguments: {argument} is not answered in a dry run.\n");
                return SmiOutput { text, status: 2 };
            }
        }
    }
    if lists {
        let line = |device: &u32| format!("GPU {device}: {} (UUID: {})\n", gpu.product, uuid_name(*device));
        return done(wanted.iter().map(line).collect());
    }
    let Some(fields) = fields else { return done(table(gpu, &wanted)) };
    let fields: Vec<&str> = fields.split(',').map(str::trim).collect();
    let mut text = String::new();
    if has_header {
        let head = |field: &&str| match unit(field) {
            Some(unit) if has_units => format!("{field} [{unit}]"),
            _ => (*field).to_owned(),
        };
        let _ = writeln!(text, "{}", fields.iter().map(head).collect::<Vec<_>>().join(", "));
    }
    if processes {
        return done(text);
    }
    for device in wanted {
        let mut row = Vec::new();
        for field in &fields {
            let Some(value) = value(field, gpu, device, devices) else {
                return SmiOutput { text: format!("Field \"{field}\" is not a valid field to query.\n"), status: 2 };
            };
            row.push(match unit(field) {
                Some(unit) if has_units && !value.starts_with('[') => format!("{value} {unit}"),
                _ => value,
            });
        }
        let _ = writeln!(text, "{}", row.join(", "));
    }
    done(text)
}

fn done(text: String) -> SmiOutput {
    SmiOutput { text, status: 0 }
}

/// The devices that a list of numbers, identities or places on the bus names.
fn chosen(list: &str, devices: u32) -> Option<Vec<u32>> {
    let find = |id: &str| (0..devices).find(|&d| id == d.to_string() || id == uuid_name(d) || id == bus_name(d));
    list.split(',').map(|id| find(id.trim())).collect()
}

/// The unit that `--format=csv` writes.
fn unit(field: &str) -> Option<&'static str> {
    match field {
        _ if field.starts_with("memory.") => Some("MiB"),
        _ if field.starts_with("utilization.") => Some("%"),
        _ if field.starts_with("clocks.") => Some("MHz"),
        _ if field.starts_with("power.") || field == "enforced.power.limit" => Some("W"),
        _ => None,
    }
}

/// A field's value; none for a field that there is not.
fn value(field: &str, gpu: &Gpu, device: u32, devices: u32) -> Option<String> {
    let mebibytes = gpu.total / MIB;
    Some(match field {
        "index" | "minor_number" => device.to_string(),
        "count" => devices.to_string(),
        "name" | "gpu_name" => gpu.product.to_owned(),
        "uuid" | "gpu_uuid" => uuid_name(device),
        "pci.bus_id" | "gpu_bus_id" => bus_name(device),
        "driver_version" => DRIVER.to_owned(),
        "compute_cap" => format!("{}.{}", gpu.capability.0, gpu.capability.1),
        "memory.total" | "memory.free" => mebibytes.to_string(),
        "memory.used" | "memory.reserved" => "0".to_owned(),
        "utilization.gpu" | "utilization.memory" => "0".to_owned(),
        "temperature.gpu" => "30".to_owned(),
        "power.draw" | "power.draw.instant" | "power.draw.average" => "70.00".to_owned(),
        "clocks.sm"
        | "clocks.gr"
        | "clocks.max.sm"
        | "clocks.max.gr"
        | "clocks.current.sm"
        | "clocks.current.graphics" => (gpu.clock / 1000).to_string(),
        "clocks.mem" | "clocks.max.mem" | "clocks.max.memory" | "clocks.current.memory" => {
            (gpu.memory_clock / 1000).to_string()
        }
        "pstate" => "P0".to_owned(),
        "compute_mode" => "Default".to_owned(),
        "persistence_mode" => "Enabled".to_owned(),
        "display_mode" | "display_active" => "Disabled".to_owned(),
        "ecc.mode.current" => if gpu.ecc { "Enabled" } else { "[N/A]" }.to_owned(),
        "mig.mode.current"
        | "power.limit"
        | "enforced.power.limit"
        | "fan.speed"
        | "serial"
        | "gpu_serial"
        | "temperature.memory"
        | "ecc.errors.uncorrected.volatile.total" => "[N/A]".to_owned(),
        _ => return None,
    })
}

/// The table of a call without arguments.
fn table(gpu: &Gpu, wanted: &[u32]) -> String {
    let line = "-".repeat(89);
    let mut text = format!("+{line}+\n");
    let head = format!("NVIDIA-SMI {DRIVER:<18}     Driver Version: {DRIVER:<14} CUDA Version: {CUDA}");
    let _ = writeln!(text, "| {head:<87} |");
    let _ = writeln!(text, "|{}+{}+{}|", "-".repeat(41), "-".repeat(24), "-".repeat(22));
    let _ = writeln!(
        text,
        "| {:<39} | {:<22} | {:<20} |",
        "GPU  Name                 Persistence-M", "Bus-Id          Disp.A", "Volatile Uncorr. ECC"
    );
    let _ = writeln!(
        text,
        "| {:<39} | {:>22} | {:>20} |",
        "Fan  Temp   Perf          Pwr:Usage/Cap", "Memory-Usage", "GPU-Util  Compute M."
    );
    let _ = writeln!(text, "|{0}+{1}+{2}|", "=".repeat(41), "=".repeat(24), "=".repeat(22));
    for &device in wanted {
        let name = format!("{device:>3}  {:<28} On", gpu.product.chars().take(28).collect::<String>());
        let _ = writeln!(
            text,
            "| {name:<39} | {:<16} Off   | {:>20} |",
            bus_name(device),
            if gpu.ecc { "0" } else { "N/A" }
        );
        let memory = format!("0MiB / {}MiB", gpu.total / MIB);
        let _ = writeln!(
            text,
            "| {:<39} | {memory:>22} | {:>20} |",
            "N/A   30C    P0             70W /  N/A", "0%      Default"
        );
    }
    let _ = writeln!(text, "+{line}+");
    let _ = writeln!(text, "| {:<87} |\n| {:<87} |\n+{line}+", "Processes:", " No running processes found");
    text
}
