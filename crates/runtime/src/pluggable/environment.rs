//! A library that was given to PyTorch by hand, with nothing but its path: the environment says the rest.

use std::env;
use std::sync::Once;

use stalloc_common::figures::{bytes, percent};
use stalloc_common::settings;

use crate::fault::contained;
use crate::folder::plans;
use crate::messages::say;
use crate::{arenas, learning};

/// GPUs of a machine, at most, that learn without having been named.
const GPUS_OF_A_MACHINE: i32 = 16;

/// Before the first request: does what the environment says.
pub fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        match settings::MODE.text().unwrap_or_default().to_lowercase().as_str() {
            "alloc" => serve(false),
            "auto" | "" => serve(true),
            "torch" => {}
            "trace" => {
                say("this way into PyTorch cannot record; use `stalloc trace` or stalloc.enable(mode=\"trace\")")
            }
            mode => say(&format!("STALLOC_MODE={mode} is none of Auto, Torch, Trace, Alloc")),
        }
        if settings::LOG_LEVEL.number().is_none_or(|level: u32| level < 3) {
            // SAFETY: the function takes nothing, does not unwind, and lives as long as the process: Python never unloads
            // an allocator's library.
            unsafe { libc::atexit(at_exit) };
            say("this allocator was given to PyTorch by its name: record_stream, empty_cache and CUDA graphs do not \
                 reach it; where a program uses them, start it with `stalloc run`");
        }
    });
}

/// Serves from the plans that there are; where it learns, every GPU that has none, too.
fn serve(learns: bool) {
    let number = |name| env::var(name).ok().and_then(|value| value.parse().ok());
    let (rank, folder) = (number("RANK").unwrap_or(0), settings::FOLDER.path());
    let plans = folder.as_ref().map(|folder| plans(folder, rank)).unwrap_or_default();
    if learns {
        learning::start();
    } else if plans.is_empty() {
        return say(&match folder {
            Some(folder) => format!("no plan for rank {rank} in {}; running without a plan", folder.display()),
            None => {
                "STALLOC_MODE=Alloc needs STALLOC_MODEL_INFO_PATH, a folder with plans; running without a plan".into()
            }
        });
    }
    if number("WORLD_SIZE").is_some_and(|size| size > 1) {
        arenas::forbid_waits();
    }
    for (device, path) in plans {
        match stalloc_plan::read(&path) {
            Ok(plan) => _ = arenas::prepare(device, plan),
            Err(error) => say(&format!("device {device} runs without a plan: {error}")),
        }
    }
    for device in 0..if learns { GPUS_OF_A_MACHINE } else { 0 } {
        arenas::prepare(device, stalloc_plan::Plan::default());
    }
}

/// What was served from the plan, a line per device.
extern "C" fn at_exit() {
    contained("at_exit", || (0..64).for_each(tell), || ());
}

fn tell(device: i32) {
    let Some(report) = arenas::report(device) else { return };
    let arena = report.arena;
    say(&format!(
        "dev{device}: {:.2} % of {} requests at planned offsets, {} at the best fit, {} by the fallback; plan of {}, {} \
         remaps, peak reserved {}, efficiency {}",
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
            "dev{device}: the program is not the one that the plan was made from, or changed a lot; record and plan it again"
        ));
    }
}
