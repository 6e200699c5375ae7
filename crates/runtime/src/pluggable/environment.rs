//! A library that was given to PyTorch by hand, with nothing but its path: the environment says the rest.

use std::collections::BTreeMap;
use std::env;
use std::ffi::c_int;
use std::path::PathBuf;
use std::sync::Once;

use stalloc_common::figures::{bytes, percent};
use stalloc_common::settings;

use crate::arenas;
use crate::fault::contained;
use crate::folder::plans;
use crate::messages::say;

/// Before the first request: does what the environment says.
pub fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let quiet = settings::LOG_LEVEL.number().is_some_and(|level: u32| level >= 3);
        let mode = settings::MODE.text().unwrap_or_default().to_lowercase();
        match mode.as_str() {
            "alloc" => serve(quiet),
            "auto" | "" => learn(quiet),
            "torch" => {}
            "trace" => {
                say("this way into PyTorch cannot record; use `stalloc trace` or stalloc.enable(mode=\"trace\")")
            }
            _ => say(&format!("STALLOC_MODE={mode} is none of Auto, Torch, Trace, Alloc")),
        }
        if !quiet {
            say(
                "this allocator was given to PyTorch by its name: record_stream, empty_cache and CUDA graphs do not reach \
                 it; where a program uses them, start it with `stalloc run`",
            );
        }
    });
}

/// GPUs of a machine, at most, that learn without having been named.
const GPUS_OF_A_MACHINE: i32 = 16;

/// Serves every GPU from an arena that learns, starting from the plans that there are.
fn learn(quiet: bool) {
    crate::learning::start();
    let folder = settings::FOLDER.path();
    follow(folder.map(|folder| plans(&folder, rank())).unwrap_or_default());
    for device in 0..GPUS_OF_A_MACHINE {
        arenas::prepare(device, stalloc_plan::Plan::default());
    }
    tell_at_exit(quiet);
}

fn rank() -> u64 {
    env::var("RANK").ok().and_then(|rank| rank.parse().ok()).unwrap_or(0)
}

fn serve(quiet: bool) {
    let Some(folder) = settings::FOLDER.path() else {
        return say("STALLOC_MODE=Alloc needs STALLOC_MODEL_INFO_PATH, a folder with plans; running without a plan");
    };
    let rank = rank();
    let plans = plans(&folder, rank);
    if plans.is_empty() {
        return say(&format!("no plan for rank {rank} in {}; running without a plan", folder.display()));
    }
    follow(plans);
    tell_at_exit(quiet);
}

fn follow(plans: BTreeMap<i32, PathBuf>) {
    if env::var("WORLD_SIZE").is_ok_and(|size| size.parse().is_ok_and(|size: u64| size > 1)) {
        arenas::forbid_waits();
    }
    for (device, path) in plans {
        match stalloc_plan::read(&path) {
            Ok(plan) => {
                arenas::prepare(device, plan);
            }
            Err(error) => say(&format!("device {device} runs without a plan: {error}")),
        }
    }
}

fn tell_at_exit(quiet: bool) {
    if !quiet {
        // SAFETY: the function takes nothing, does not unwind, and lives as long as the process: Python never unloads
        // an allocator's library.
        unsafe { atexit(at_exit) };
    }
}

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> c_int;
}

/// What was served from the plan, a line per device.
extern "C" fn at_exit() {
    contained("at_exit", tell, || ());
}

fn tell() {
    for device in 0..64 {
        let Some(report) = arenas::report(device) else { continue };
        let arena = report.arena;
        say(&format!(
            "dev{device}: {:.2} % of {} requests at planned offsets, {} at the best fit, {} by the fallback; plan of \
             {}, {} remaps, peak reserved {}, efficiency {}",
            100.0 * arena.planned as f64 / arena.requests.max(1) as f64,
            arena.requests,
            arena.best_fit,
            arena.fallback,
            bytes(arena.arena),
            arena.remaps,
            bytes(report.peak_reserved),
            percent(report.peak_allocated as f64 / report.peak_reserved.max(1) as f64),
        ));
        if arena.is_of_another_program() {
            say(&format!(
                "dev{device}: the program is not the one that the plan was made from, or changed a lot; record and plan it \
                 again"
            ));
        }
    }
}
