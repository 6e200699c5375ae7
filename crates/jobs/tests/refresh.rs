//! Plans of a folder are made again when their traces changed, and only then.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use stalloc_jobs::{Error, Notes, inputs, planning, refresh};
use stalloc_trace::{Format, Mark, RawEvent, Recording, StackId, TraceBuilder};

/// A trace of four equal steps of two requests each, one of them of `size` bytes.
fn write_trace(path: &Path, size: u64) {
    let mut builder = TraceBuilder::new(0);
    for step in 0..4 {
        builder.push(RawEvent::Mark(Mark::StepBegin), None);
        for (part, size) in [(0, size), (1, 4096)] {
            let address = (1 + step * 2 + part) << 30;
            builder.push(RawEvent::Alloc { address, size, stream: 0, stack: StackId::NONE }, None);
        }
        for (part, size) in [(0, size), (1, 4096)] {
            let address = (1 + step * 2 + part) << 30;
            builder.push(RawEvent::FreeRequested { address, size, stream: 0 }, None);
            builder.push(RawEvent::FreeCompleted { address, size, stream: 0 }, None);
        }
        builder.push(RawEvent::Mark(Mark::StepEnd), None);
    }
    let recording = Recording { format: Format::Stalloc, traces: vec![builder.finish()], warnings: Vec::new() };
    let file = stalloc_trace::format::write_recording(&recording, Vec::new()).unwrap();
    fs::write(path, file).unwrap();
}

fn refresh(folder: &Path) -> (Vec<PathBuf>, Vec<String>) {
    let (mut planned, mut notes) = (Vec::new(), Notes::default());
    refresh::folder(folder, false, &planning::usual_effort(), &mut notes, &mut |plan, _| planned.push(plan.to_owned()))
        .unwrap();
    (planned, notes.0)
}

#[test]
fn a_plan_is_made_once_and_again_when_its_trace_is_another() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, plan) = (folder.path().join("rank0_dev0.trace"), folder.path().join("rank0_dev0.plan"));
    write_trace(&trace, 1 << 20);
    assert_eq!(refresh(folder.path()), (vec![plan.clone()], Vec::new()));
    let first = inputs::plan(&plan).unwrap();
    assert_eq!(refresh(folder.path()), (Vec::new(), Vec::new()), "it is up to date");
    write_trace(&trace, 2 << 20);
    assert_eq!(refresh(folder.path()), (vec![plan.clone()], Vec::new()));
    assert_ne!(inputs::plan(&plan).unwrap().fingerprint, first.fingerprint);
}

#[test]
fn a_trace_that_cannot_be_read_is_noted_and_its_plan_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, plan) = (folder.path().join("rank0_dev0.trace"), folder.path().join("rank0_dev0.plan"));
    write_trace(&trace, 1 << 20);
    refresh(folder.path());
    let before = fs::read(&plan).unwrap();
    fs::write(&trace, b"not a trace").unwrap();
    let (planned, notes) = refresh(folder.path());
    assert!(planned.is_empty());
    assert!(notes.len() == 1 && notes[0].ends_with("rank0_dev0.plan stays as it is"), "{notes:?}");
    assert_eq!(fs::read(&plan).unwrap(), before);
}

#[test]
fn a_folder_to_follow_alone_must_hold_something() {
    let folder = tempfile::tempdir().unwrap();
    let frozen =
        |path: &Path| refresh::folder(path, true, &planning::usual_effort(), &mut Notes::default(), &mut |_, _| {});
    assert!(matches!(frozen(folder.path()), Err(Error::NothingToFollow(_))));
    assert!(matches!(frozen(&folder.path().join("none")), Err(Error::NoFolder(_))));
}
