//! Every real input is planned, and the plan passes the independent checks.

use std::path::{Path, PathBuf};

use stalloc_synthesizer::{Options, plan};
use stalloc_trace::{Input, open};

fn files(folder: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(folder);
    let Ok(entries) = std::fs::read_dir(&root) else {
        eprintln!("SKIPPED: {} is not there, so no real trace was planned", root.display());
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    files.sort();
    files
}

fn check(folder: &str, efficiency: f64) {
    for path in files(folder) {
        let input = open(&path, &mut |_, _| {}).unwrap_or_else(|error| panic!("{error}"));
        let Input::Recording(recording) = input else { continue };
        for trace in recording.traces.iter().filter(|trace| !trace.requests.is_empty()) {
            let name = format!("{} device {}", path.display(), trace.device);
            let (plan, summary) =
                plan(trace, &Options::default(), &mut |_, _| {}).unwrap_or_else(|error| panic!("{name}: {error}"));
            let verdict = plan.check().and(plan.check_against(trace));
            assert!(verdict.ok, "{name}: {:?}", verdict.problems);
            assert!(summary.efficiency >= efficiency, "{name}: efficiency {:.4}", summary.efficiency);
            println!("{name}: {} steps, efficiency {:.4}", summary.steps, summary.efficiency);
        }
    }
}

#[test]
fn every_recorded_trace_is_planned_soundly() {
    check("traces", 0.95);
}

#[test]
fn every_snapshot_is_planned_soundly() {
    check("snapshots", 0.0);
}
