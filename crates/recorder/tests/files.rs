//! What a recorder leaves on disk.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use stalloc_recorder::{Process, Recorder};
use stalloc_trace::{Event, Frame, Input, Mark, RawEvent, StackId, Trace};

fn alloc(address: u64, size: u64, stack: StackId) -> RawEvent {
    RawEvent::Alloc { address, size, stream: 0, stack }
}

fn recorder(directory: &Path, rank: u32) -> Recorder {
    Recorder::new(directory.to_owned(), Process { rank, ..Process::default() })
}

fn read(path: &Path) -> Trace {
    match stalloc_trace::open(path, &mut |_, _| {}).unwrap() {
        Input::Recording(mut recording) => recording.traces.remove(0),
        _ => panic!("{} is no recording", path.display()),
    }
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn each_device_gets_its_file_with_the_stacks_and_marks_that_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = recorder(folder.path(), 3);
    let frame =
        |line| Frame { file: recorder.string("train.py"), function: recorder.string(&format!("f{line}")), line };
    let (outer, both) = (recorder.stack(vec![frame(1)]), recorder.stack(vec![frame(2), frame(1)]));
    recorder.event(0, alloc(512, 100, both));
    recorder.mark(&Mark::ModuleEnter(recorder.string("attention")));
    recorder.event(1, alloc(512, 200, outer));
    recorder.mark(&Mark::HostRead { stack: both, bytes: 4, answer: None });
    recorder.finish(3, Some("ValueError at train.py:3 main")).unwrap();
    assert_eq!(names(folder.path()), ["rank3_dev0.trace", "rank3_dev1.trace"]);
    let lines = |trace: &Trace, stack| -> Vec<String> {
        trace.stacks.get(stack).iter().map(|frame| format!("{}:{}", trace.string(frame.function), frame.line)).collect()
    };
    let first = read(&folder.path().join("rank3_dev0.trace"));
    assert_eq!(lines(&first, first.requests[0].stack), ["f2:2", "f1:1"]);
    let Event::Mark(Mark::ModuleEnter(name)) = &first.events[1] else { panic!("{:?}", first.events) };
    assert_eq!(first.string(*name), "attention");
    let second = read(&folder.path().join("rank3_dev1.trace"));
    assert!([&first, &second].iter().all(|one| one.metadata["ended_by"] == "ValueError at train.py:3 main"));
    assert_eq!(lines(&second, second.requests[0].stack), ["f1:1"]);
    assert_eq!(lines(&second, second.host_reads()[0].stack), ["f2:2", "f1:1"]);
}

#[test]
fn what_was_flushed_is_there_although_nothing_ever_finishes() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = recorder(folder.path(), 0);
    recorder.event(0, alloc(512, 100, StackId::NONE));
    recorder.flush().unwrap();
    recorder.event(0, alloc(1024, 200, StackId::NONE));
    let trace = read(&folder.path().join("rank0_dev0.trace"));
    assert_eq!(trace.requests.len(), 1);
}

#[test]
fn a_rank_that_becomes_known_late_names_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = recorder(folder.path(), 0);
    recorder.event(0, alloc(512, 100, StackId::NONE));
    recorder.finish(5, None).unwrap();
    assert_eq!(names(folder.path()), ["rank5_dev0.trace"]);
    assert_eq!(read(&folder.path().join("rank5_dev0.trace")).metadata["rank"], "5");
}

#[test]
fn no_trace_takes_the_place_of_that_of_another_process() {
    let folder = tempfile::tempdir().unwrap();
    for taken in ["rank0_dev0.trace", "rank5_dev0.trace"] {
        fs::write(folder.path().join(taken), "another's").unwrap();
    }
    let recorder = recorder(folder.path(), 0);
    recorder.event(0, alloc(512, 100, StackId::NONE));
    recorder.finish(5, None).unwrap();
    let own = format!("rank0_dev0.{}.trace", std::process::id());
    assert_eq!(names(folder.path()), [&own, "rank0_dev0.trace", "rank5_dev0.trace"]);
    assert_eq!(fs::read_to_string(folder.path().join("rank5_dev0.trace")).unwrap(), "another's");
}

/// A launcher's name, which says when it started: after everything in `directory` was written.
fn launch(directory: &Path) -> String {
    let written = |path: &Path| fs::metadata(path).unwrap().modified().unwrap().duration_since(UNIX_EPOCH).unwrap();
    let last = names(directory).iter().map(|name| written(&directory.join(name))).max().unwrap_or_default();
    let probe = directory.join("probe");
    loop {
        fs::write(&probe, b"").unwrap();
        let now = written(&probe);
        fs::remove_file(&probe).unwrap();
        if now > last {
            return format!("{:x}-any", now.as_nanos());
        }
    }
}

/// One event of rank 0 recorded by a process of some launcher, which ended well or was killed.
fn record_once(directory: &Path, launch: &str, host: &str, size: u64, is_killed: bool) {
    let metadata = [("launch", launch), ("host", host)].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let recorder = Recorder::new(directory.to_owned(), Process { metadata, ..Process::default() });
    recorder.event(0, alloc(512, size, StackId::NONE));
    if is_killed {
        recorder.flush().unwrap();
    } else {
        recorder.finish(0, None).unwrap();
    }
}

#[test]
fn only_a_whole_recording_takes_the_place_of_an_older_one_that_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = || -> Vec<u64> {
        let mut sizes: Vec<_> =
            names(folder.path()).iter().map(|name| read(&folder.path().join(name)).requests[0].size).collect();
        sizes.sort_unstable();
        sizes
    };
    let (one, at_once) = (launch(folder.path()), launch(folder.path()));
    record_once(folder.path(), &one, "here", 1, false);
    record_once(folder.path(), &one, "here", 2, false);
    assert_eq!(sizes(), [1, 2], "two processes of one launcher");
    record_once(folder.path(), &at_once, "here", 3, false);
    assert_eq!(sizes(), [1, 2, 3], "another launcher that started before the first was done");
    record_once(folder.path(), &launch(folder.path()), "here", 4, false);
    assert_eq!(sizes(), [2, 3, 4], "another launcher, later");
    record_once(folder.path(), &launch(folder.path()), "here", 5, true);
    assert_eq!(sizes(), [2, 3, 4, 5], "what was cut off takes nobody's place");
    fs::remove_file(folder.path().join("rank0_dev0.trace")).unwrap();
    record_once(folder.path(), &launch(folder.path()), "there", 6, true);
    record_once(folder.path(), &launch(folder.path()), "here", 7, false);
    assert_eq!(sizes(), [2, 3, 5, 6, 7], "a process of another machine may still be writing");
}

#[test]
fn a_recording_that_is_being_written_keeps_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let first = recorder(folder.path(), 0);
    first.event(0, alloc(512, 1, StackId::NONE));
    first.flush().unwrap();
    record_once(folder.path(), &launch(folder.path()), "", 2, false);
    first.event(0, alloc(1024, 3, StackId::NONE));
    first.finish(0, None).unwrap();
    assert_eq!(read(&folder.path().join("rank0_dev0.trace")).requests.len(), 2);
    assert_eq!(names(folder.path()).len(), 2);
}

#[test]
fn a_file_that_cannot_be_made_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = recorder(&folder.path().join("nowhere"), 0);
    recorder.event(0, alloc(512, 100, StackId::NONE));
    let message = recorder.flush().unwrap_err().to_string();
    assert!(message.contains("nowhere/rank0_dev0.trace"), "{message}");
}

#[test]
fn times_of_a_dry_run_are_those_of_its_clock() {
    extern "C" fn clock(what: i32) -> u64 {
        [5_000_000, 1_000_000, 9_000_000][what as usize]
    }
    let folder = tempfile::tempdir().unwrap();
    let recorder = recorder(folder.path(), 0).with_clock(clock);
    recorder.event(0, alloc(512, 100, StackId::NONE));
    recorder.mark(&Mark::StepBegin);
    recorder.finish(0, None).unwrap();
    let trace = read(&folder.path().join("rank0_dev0.trace"));
    assert_eq!(trace.times_us, [5_000, 5_000]);
    let metadata = [("clock", "modelled"), ("step_times_us", "9000:1000 9000:1000")];
    assert!(metadata.iter().all(|(key, value)| trace.metadata.get(*key).is_some_and(|said| said == value)));
}
