//! The device that the environment asks for when the first function is called, as with CUDA.

use crate::log;
use stalloc_common::settings;
use stalloc_dryrun_setup::{GPUS, Gpu, MAX_DEVICES, MIB, find};
use std::{env, process, sync::LazyLock};

/// What the environment asks for.
#[derive(Debug, Clone)]
pub struct Config {
    /// The model, with its capacity and context as overridden.
    pub gpu: Gpu,
    /// Number of devices.
    pub devices: u32,
    /// The seed with which events complete late; none: they are complete at once, and no order is checked.
    pub late_events: Option<u64>,
    /// Whether the host's time is that of a real clock, and not what its calls cost.
    pub real_clock: bool,
    /// Whether memory never runs out.
    pub ample: bool,
    /// Whether no memory can be exported to other processes.
    pub keeps_memory: bool,
    /// Whether the installed cuDNN is never asked.
    pub imitates_cudnn: bool,
}

static CONFIG: LazyLock<Config> = LazyLock::new(of_environment);

fn of_environment() -> Config {
    read(|name| env::var(name).ok()).unwrap_or_else(|complaint| {
        log::complain(&complaint);
        process::exit(2)
    })
}

/// The configuration of this process.
pub fn config() -> &'static Config {
    &CONFIG
}

/// Reads a configuration from variables; the error is a sentence.
pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Config, String> {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let number = |name: &str| {
        variable(name)
            .map(|value| value.parse::<u64>().map_err(|_| format!("{name}={value}: not a whole number")))
            .transpose()
    };
    let default = GPUS.iter().find(|gpu| gpu.name == "h100-80gb").ok_or("no default GPU")?;
    let mut gpu = match variable(settings::DRYRUN_GPU.name) {
        Some(name) => find(&name).map_err(|error| error.to_string())?,
        None => *default,
    };
    let devices = number(settings::DRYRUN_DEVICES.name)?.unwrap_or(1);
    let devices = u32::try_from(devices)
        .ok()
        .filter(|devices| (1..=MAX_DEVICES).contains(devices))
        .ok_or(format!("{}={devices}: a dry run has 1 to {MAX_DEVICES} devices", settings::DRYRUN_DEVICES.name))?;
    let mebibytes = |name: &str| -> Result<Option<u64>, String> {
        // A terabyte of memory on each device is all that the address ranges have room for.
        match number(name)? {
            Some(value) if value > 1 << 20 => Err(format!("{name}={value}: more than {} MiB", 1 << 20)),
            value => Ok(value.map(|value| value * MIB)),
        }
    };
    gpu.total = mebibytes(settings::DRYRUN_TOTAL_MIB.name)?.unwrap_or(gpu.total);
    gpu.context = mebibytes(settings::DRYRUN_CONTEXT_MIB.name)?.unwrap_or(gpu.context);
    if gpu.context > gpu.total {
        return Err(format!(
            "a context of {} MiB does not fit in {} MiB ({}, {})",
            gpu.context / MIB,
            gpu.total / MIB,
            settings::DRYRUN_CONTEXT_MIB.name,
            settings::DRYRUN_TOTAL_MIB.name
        ));
    }
    let flag = |name: &str| match variable(name).as_deref() {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => Err(format!("{name}={other}: 0 or 1")),
    };
    let (ample, keeps_memory) = (flag(settings::DRYRUN_AMPLE.name)?, flag(settings::DRYRUN_NO_EXPORT.name)?);
    let imitates_cudnn = match variable(settings::DRYRUN_CUDNN.name).as_deref() {
        None | Some("installed") => false,
        Some("imitated") => true,
        Some(other) => return Err(format!("{}={other}: installed or imitated", settings::DRYRUN_CUDNN.name)),
    };
    let real_clock = match variable(settings::DRYRUN_CLOCK.name).as_deref() {
        None | Some("modelled") => false,
        Some("real") => true,
        Some(other) => return Err(format!("{}={other}: modelled or real", settings::DRYRUN_CLOCK.name)),
    };
    Ok(Config {
        real_clock,
        gpu,
        devices,
        ample,
        keeps_memory,
        imitates_cudnn,
        late_events: number(settings::DRYRUN_LATE_EVENTS.name)?,
    })
}

/// Reads the environment before `main`, too, so that a mistake ends the process before it starts.
extern "C" fn check() {
    of_environment();
}

#[used]
#[unsafe(link_section = ".init_array")]
static CHECK: extern "C" fn() = check;

#[cfg(test)]
mod tests;
