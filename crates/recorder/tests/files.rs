//! What a recorder leaves on disk.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

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
    recorder.finish(3).unwrap();
    assert_eq!(names(folder.path()), ["rank3_dev0.trace", "rank3_dev1.trace"]);
    let lines = |trace: &Trace, stack| -> Vec<String> {
        trace.stacks.get(stack).iter().map(|frame| format!("{}:{}", trace.string(frame.function), frame.line)).collect()
    };
    let first = read(&folder.path().join("rank3_dev0.trace"));
    assert_eq!(lines(&first, first.requests[0].stack), ["f2:2", "f1:1"]);
    let Event::Mark(Mark::ModuleEnter(name)) = &first.events[1] else { panic!("{:?}", first.events) };
    assert_eq!(first.string(*name), "attention");
    let second = read(&folder.path().join("rank3_dev1.trace"));
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
    recorder.finish(5).unwrap();
    assert_eq!(names(folder.path()), ["rank5_dev0.trace"]);
    assert_eq!(read(&folder.path().join("rank5_dev0.trace")).metadata["rank"], "5");
}

#[test]
fn no_trace_takes_the_place_of_another_processs() {
    let folder = tempfile::tempdir().unwrap();
    for taken in ["rank0_dev0.trace", "rank5_dev0.trace"] {
        fs::write(folder.path().join(taken), "another's").unwrap();
    }
    let recorder = recorder(folder.path(), 0);
    recorder.event(0, alloc(512, 100, StackId::NONE));
    recorder.finish(5).unwrap();
    let own = format!("rank0_dev0.{}.trace", std::process::id());
    assert_eq!(names(folder.path()), [&own, "rank0_dev0.trace", "rank5_dev0.trace"]);
    assert_eq!(fs::read_to_string(folder.path().join("rank5_dev0.trace")).unwrap(), "another's");
}

#[test]
fn a_file_that_cannot_be_made_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = recorder(&folder.path().join("nowhere"), 0);
    recorder.event(0, alloc(512, 100, StackId::NONE));
    let message = recorder.flush().unwrap_err().to_string();
    assert!(message.contains("nowhere/rank0_dev0.trace"), "{message}");
}
