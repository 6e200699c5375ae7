//! Every real input is planned soundly; those that repeat exactly, to the bound.

use std::path::{Path, PathBuf};
use std::time::Instant;

use stalloc_plan::Plan;
use stalloc_synthesizer::{PlanSummary, SynthesisOptions, plan};
use stalloc_trace::{Input, Trace, open};

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    files.retain(|file| file.is_file());
    files.sort();
    files
}

fn each(folder: &Path, mut then: impl FnMut(&str, &Trace, &Plan, &PlanSummary)) {
    for path in files(folder) {
        let input = open(&path, &mut |_, _| {}).unwrap_or_else(|error| panic!("{error}"));
        let Input::Recording(recording) = input else { continue };
        for trace in recording.traces.iter().filter(|trace| !trace.requests.is_empty()) {
            let name = format!("{} device {}", path.file_name().unwrap_or_default().to_string_lossy(), trace.device);
            // What a second stands for, however busy the machine is.
            let planner = stalloc_planner::SolveOptions { work_limit: Some(60_000_000), ..Default::default() };
            let options = SynthesisOptions { planner };
            let started = Instant::now();
            let (plan, summary) =
                plan(trace, &options, &mut |_, _| {}).unwrap_or_else(|error| panic!("{name}: {error}"));
            let seconds = started.elapsed().as_secs_f64();
            let verdict = plan.check().and(plan.check_against(trace));
            assert!(verdict.ok, "{name}: {:?}", verdict.problems);
            let with = summary.planned.requests;
            println!(
                "{name}: {} steps, {with} of {} requests with offsets, ratio {:.4}, efficiency {:.4}, {seconds:.3} s; {}",
                summary.steps,
                summary.requests,
                summary.planned.ratio,
                summary.efficiency,
                summary.notes.join("; "),
            );
            then(&name, trace, &plan, &summary);
        }
    }
}

/// A folder of those that `STALLOC_RECORDINGS` names.
fn real(folder: &str) -> PathBuf {
    Path::new(&std::env::var_os("STALLOC_RECORDINGS").expect("STALLOC_RECORDINGS names the folder")).join(folder)
}

#[test]
#[ignore = "needs real recordings: STALLOC_RECORDINGS=FOLDER"]
fn every_recorded_training_run_is_planned_to_the_bound() {
    each(&real("traces"), |name, _, _, summary| {
        // Small tensors that several steps keep at once have no offset.
        let few = 1000 * summary.dynamic.requests <= summary.requests
            && 1000 * summary.dynamic.peak <= summary.peak_allocated;
        assert!(few && summary.planned.ratio < 1.00005, "{name}: {:?}, {:?}", summary.planned, summary.dynamic);
    });
}

#[test]
#[ignore = "needs real recordings: STALLOC_RECORDINGS=FOLDER"]
fn every_snapshot_is_planned_soundly() {
    each(&real("snapshots"), |name, _, plan, summary| {
        let nothing = plan.sections.is_empty() && plan.arena == 0 && plan.lower_bound == plan.expected_peak;
        assert_eq!(plan.slots.is_empty(), nothing, "{name}: without offsets nothing is promised");
        assert!(summary.planned.ratio < 1.05, "{name}: {:?}", summary.planned);
    });
}
