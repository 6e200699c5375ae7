//! `stalloc run --fit`: the cheapest set of levers that makes the job fit, found without its GPU before it starts.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use stalloc_common::settings;
use stalloc_dryrun_setup::{GPUS, Gpu, MIB, find};
use stalloc_jobs::fit::{self, TrialSetting};
use stalloc_jobs::levers::{self, Answer, Combination, LeverQuestion, first_plan};

use crate::commands::levers::{own, say_rising, step, watching};
use crate::commands::trace::{Answers, failed};
use crate::commands::trials::happened;
use crate::error::{Ending, Error};
use crate::output;
use crate::progress::Spinner;

/// Steps of each trial: the first makes the optimizer's states.
const STEPS: u32 = 3;

/// A trial that takes longer says nothing.
const LIMIT: Duration = Duration::from_secs(900);

/// How the job is to run.
pub enum Decision {
    /// It fits, or nothing can be said.
    AsItIs,
    /// With levers: what its processes are told, and the folder of the plan that it starts with, where there is one.
    With(String, Option<PathBuf>),
    /// Not at all.
    Not(Ending),
}

/// The levers to choose among: `only` these, or all that change no numbers, and those that are `allowed` to.
pub fn among(only: &[String], allowed: &[String]) -> Result<Vec<String>, Error> {
    let changing = levers::CHANGING_FROM_OUTSIDE;
    if let Some(name) = allowed.iter().find(|name| !changing.contains(&name.as_str())) {
        return Err(Error::message(format!(
            "--allow {name}: the levers that change numbers are {}",
            changing.join(", ")
        )));
    }
    let all: Vec<String> =
        levers::FROM_OUTSIDE.iter().map(|name| (*name).to_owned()).chain(allowed.iter().cloned()).collect();
    if let Some(name) = only.iter().find(|name| !all.contains(name)) {
        return Err(Error::message(format!("--only {name}: the levers that --fit applies are {}", all.join(", "))));
    }
    Ok(if only.is_empty() { all } else { only.to_vec() })
}

/// Tries the command and decides. `size` is what was given after `--fit=`, or empty; `plans` is the job's own folder of plans.
pub fn decide(
    size: &str,
    among: Vec<String>,
    dry_run: Option<&str>,
    command: &[OsString],
    answers: &Answers,
    plans: Option<&Path>,
) -> Result<Decision, Error> {
    let message = |error: fit::Error| Error::message(error.to_string());
    let (gpu, used) = card(dry_run)?;
    let goal = match size {
        "" => gpu.total.saturating_sub(used),
        size => output::parse_memory(size).map_err(|why| Error::message(format!("--fit: {why}")))?,
    };
    let question = LeverQuestion {
        fit: fit::Question {
            // Braces in the command are the job's own.
            command: command.iter().map(with_braces).collect(),
            gpus: vec![gpu],
            devices: 1,
            variables: Vec::new(),
            world_size: None,
            ranks: vec![0],
            goal: Some(goal),
            searched: vec![levers::OURS],
            at_once: 0,
            keeps: true,
            setting: TrialSetting {
                package: stalloc_launcher::python_package().map_err(failed)?,
                steps: STEPS,
                limit: LIMIT,
                answers: answers.answers.clone(),
                answers_file: answers.answers_file.clone(),
                shared_start: None,
                priced_on: None,
            },
        },
        world_size: None,
        only: among.into_iter().chain([levers::WITHOUT_OWN.to_owned()]).collect(),
        only_if_needed: true,
    };
    let stop =
        stalloc_launcher::stop_flag().map_err(|error| Error::message(format!("cannot listen to signals: {error}")))?;
    let mut spinner = Spinner::new();
    let answer = levers::levers(&question, &mut watching(&mut spinner), &stop).map_err(message)?;
    drop(spinner);
    if answer.is_interrupted {
        return Ok(Decision::Not(Ending::Exit(130)));
    }
    if let Err(failure) = &answer.base.outcome {
        output::say(&format!("--fit: without a GPU the command {}; the job runs as it is", happened(failure)));
        return Ok(Decision::AsItIs);
    }
    say_rising(&answer);
    if let Some(own) = own(&answer) {
        output::say(&format!("--fit: {own}"));
    }
    match &answer.combination {
        Some(found) if found.figures.fits && found.levers.is_empty() => Ok(Decision::AsItIs),
        Some(found) if found.figures.fits => {
            say(&answer, found);
            let names: Vec<&str> = found.levers.iter().map(|lever| lever.name.as_str()).collect();
            let spill = found.figures.spill.as_ref().map(|spill| &spill.plan);
            let told =
                json!({"levers": names, "models": answer.models, "peak": found.figures.peak_allocated, "spill": spill})
                    .to_string();
            let spinner = Spinner::steady("planning the job's first steps");
            let own = plans.map(Path::to_owned);
            let folder = own.or_else(|| first_plan::folder(&question.fit, &told, &found.figures));
            let planned = folder.ok_or_else(|| "no folder can be had for it".to_owned()).and_then(|folder| {
                let command = command.iter().collect();
                first_plan::plan(&question.fit, &command, &told, &folder, &stop).map(|()| folder)
            });
            drop(spinner);
            if stop.load(Ordering::Relaxed) {
                return Ok(Decision::Not(Ending::Exit(130)));
            }
            if let Err(why) = &planned {
                output::say(&format!("--fit: the job starts without a plan and learns its own: {why}"));
            }
            Ok(Decision::With(told, planned.ok()))
        }
        nearest => {
            let nearest = nearest.as_ref().map_or("no lever helps".to_owned(), |found| {
                format!("the nearest, {}, needs {}", names(found), needed(found.figures.needed))
            });
            let as_it_is = needed(answer.base.outcome.as_ref().ok().and_then(|base| base.needed));
            output::say(&format!(
                "--fit: the job needs {as_it_is} and has {}; {nearest}. It was not started: make it smaller, or allow what changes \
                 numbers (--allow {})",
                output::bytes(goal),
                levers::CHANGING_FROM_OUTSIDE[0],
            ));
            Ok(Decision::Not(Ending::No))
        }
    }
}

fn with_braces(word: &OsString) -> OsString {
    word.to_str().map_or_else(|| word.clone(), |text| text.replace('{', "{{").replace('}', "}}").into())
}

/// What is applied, what it saves, and what it costs.
fn say(answer: &Answer, found: &Combination) {
    let figures = &found.figures;
    let Ok(base) = &answer.base.outcome else { return };
    let what: Vec<String> = found.levers.iter().map(|lever| format!("{} ({})", lever.name, lever.what)).collect();
    output::say(&format!("--fit: applied from outside: {}", what.join("; ")));
    output::say(&format!(
        "--fit: the job needs {} in place of {}, and has {}",
        needed(figures.needed),
        needed(base.needed),
        output::bytes(answer.goal),
    ));
    let copies = answer.extra_host_bytes(figures).unwrap_or(0).max(0).unsigned_abs();
    let copies = if copies < MIB {
        String::new()
    } else {
        format!(", and copies {} to and from the host", output::bytes(copies))
    };
    let has = |numerics: &str| found.levers.iter().any(|lever| lever.numerics == numerics);
    let numbers = match (has("change"), has("rounding")) {
        (true, _) => "numbers change, as --allow says",
        (false, true) => "numbers stay the same but for the order of sums",
        (false, false) => "numbers stay the same",
    };
    output::say(&format!(
        "--fit: a step takes {} by the dry run's clock{copies}; {numbers}",
        step(answer, figures, true)
    ));
}

fn names(found: &Combination) -> String {
    found.levers.iter().map(|lever| lever.name.as_str()).collect::<Vec<_>>().join(" + ")
}

fn needed(bytes: Option<u64>) -> String {
    bytes.map_or("an unknown amount".to_owned(), output::bytes)
}

/// The GPU that the job will have, and what others use of it, bytes. No context is made on it.
fn card(dry_run: Option<&str>) -> Result<(Gpu, u64), Error> {
    let named = dry_run.map(str::to_owned).or_else(|| settings::DRYRUN_GPU.text());
    if let Some(name) = named {
        return Ok((find(&name).map_err(|error| Error::message(error.to_string()))?, 0));
    }
    let visible = env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let first = visible.split(',').next().map(str::trim).filter(|first| !first.is_empty()).unwrap_or("0");
    let mut ask = Command::new("nvidia-smi");
    ask.args(["--query-gpu=name,memory.total,memory.used,compute_cap", "--format=csv,noheader,nounits", "-i", first]);
    let said = ask.output().map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    described(&said).ok_or_else(|| {
        Error::message(
            "--fit: nvidia-smi does not say which GPU this is; with --dry-run GPU the job is run without one",
        )
    })
}

/// A GPU by what `nvidia-smi` says of it: `NVIDIA H100 80GB HBM3, 81559, 4, 9.0`.
fn described(said: &str) -> Option<(Gpu, u64)> {
    let fields: Vec<&str> = said.lines().next()?.split(',').map(str::trim).collect();
    let [name, total, used, capability] = fields.as_slice() else { return None };
    let (total, used) = (total.parse::<u64>().ok()? * MIB, used.parse::<u64>().ok()? * MIB);
    // Of a preset less than that is reported to programs.
    let preset = GPUS.iter().find(|gpu| gpu.product == *name && gpu.total <= total);
    let gpu = match preset {
        Some(gpu) => *gpu,
        None => find(&format!("sm=100,memory={}MiB,capability={capability},name=this", total / MIB)).ok()?,
    };
    Some((gpu, used))
}

#[cfg(test)]
mod tests {
    use super::described;

    #[test]
    fn a_gpu_is_known_by_its_name_or_described_by_its_memory() {
        let (gpu, used) = described("NVIDIA H100 80GB HBM3, 81559, 4, 9.0\n").unwrap();
        assert_eq!((gpu.name, used), ("h100-80gb", 4 << 20));
        let (gpu, _) = described("Quadro RTX 5000, 16384, 0, 7.5\n").unwrap();
        assert_eq!((gpu.total, gpu.capability), (16 << 30, (7, 5)));
        for wrong in ["", "No devices were found\n", "a, b, c, d\n", "one, 1\n"] {
            assert!(described(wrong).is_none(), "{wrong}");
        }
    }
}
