//! Plans of a folder are made again when their traces changed, and only then.

#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use stalloc_jobs::refresh::{self, Wanted};
use stalloc_jobs::{Error, KeptSentences, inputs, planning};
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

fn refresh_as(folder: &Path, rank: Option<u32>) -> (Vec<PathBuf>, Vec<String>) {
    let (mut planned, mut notes) = (Vec::new(), KeptSentences::default());
    let wanted = Wanted { folder, out: folder, rank, frozen: false };
    refresh::folder(wanted, &planning::usual_effort(), &mut notes, &mut |plan, _| planned.push(plan.to_owned()))
        .unwrap();
    (planned, notes.0)
}

fn refresh(folder: &Path) -> (Vec<PathBuf>, Vec<String>) {
    refresh_as(folder, None)
}

/// How many files the plans of a folder are on the disk.
fn files_of_plans(folder: &Path) -> usize {
    let plans = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let numbers = plans.filter(|path| path.extension().is_some_and(|kind| kind == "plan"));
    numbers.map(|path| fs::metadata(path).unwrap().ino()).collect::<HashSet<_>>().len()
}

#[test]
fn a_thousand_ranks_of_three_kinds_are_planned_three_times_and_each_finds_its_plan() {
    let folder = tempfile::tempdir().unwrap();
    for rank in 0..1024 {
        let kind = u64::from(rank == 0) + 2 * u64::from(rank == 1023);
        write_trace(&folder.path().join(format!("rank{rank}_dev0.trace")), (1 + kind) << 20);
    }
    let (planned, notes) = refresh(folder.path());
    assert!(planned.len() == 3 && notes.is_empty(), "{planned:?} {notes:?}");
    assert_eq!(files_of_plans(folder.path()), 3);
    let arena = |rank: u32| inputs::plan(&folder.path().join(format!("rank{rank}_dev0.plan"))).unwrap().arena;
    assert!(arena(0) > arena(1) && arena(1) == arena(1022) && arena(1023) > arena(0));
    assert!(refresh(folder.path()).0.is_empty(), "they are up to date");
}

#[test]
fn ranks_in_processes_of_their_own_plan_what_they_share_once_through_the_folder() {
    let held = tempfile::tempdir().unwrap();
    let folder = held.path();
    for rank in 0..16 {
        write_trace(&folder.join(format!("rank{rank}_dev0.trace")), 1 << 20);
    }
    // Threads lock files against each other as processes do.
    let planned: usize = std::thread::scope(|scope| {
        let ranks: Vec<_> =
            (0..16).map(|rank| scope.spawn(move || refresh_as(folder, Some(rank)).0.len())).collect::<Vec<_>>();
        ranks.into_iter().map(|rank| rank.join().unwrap()).sum()
    });
    assert_eq!(planned, 1);
    assert_eq!(files_of_plans(folder), 1);
    assert!((0..16).all(|rank| folder.join(format!("rank{rank}_dev0.plan")).is_file()));
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
    let frozen = |folder: &Path| {
        let wanted = Wanted { folder, out: folder, rank: None, frozen: true };
        refresh::folder(wanted, &planning::usual_effort(), &mut KeptSentences::default(), &mut |_, _| {})
    };
    assert!(matches!(frozen(folder.path()), Err(Error::NothingToFollow(_))));
    assert!(matches!(frozen(&folder.path().join("none")), Err(Error::NoFolder(_))));
}
