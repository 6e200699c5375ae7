use super::*;

fn kind(status: u8, output: &str) -> FailureKind {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    fs::write(&log, output).unwrap();
    kind_of(status, &log)
}

#[test]
fn failures_are_told_apart_by_status_and_output() {
    let refused = "usage: train.py [-h] [--mb N]\ntrain.py: error: argument --mb: invalid int value: 'x'\n";
    assert_eq!(kind(2, refused), FailureKind::Refused);
    assert_eq!(kind(2, "something else"), FailureKind::Failed);
    assert_eq!(
        kind(1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"),
        FailureKind::OutOfMemory
    );
    assert_eq!(kind(137, "half a li"), FailureKind::Killed);
    assert_eq!(kind(1, "ValueError: no data\n"), FailureKind::Failed);
}

#[test]
fn of_a_long_output_the_last_lines_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let text: String = (0..100_000).map(|n| format!("line {n}\n\n")).collect();
    fs::write(&log, [b"\xff".as_slice(), text.as_bytes()].concat()).unwrap();
    let lines = last_lines(&log);
    assert_eq!((lines.len(), lines[LAST_LINES - 1].as_str()), (LAST_LINES, "line 99999"));
    assert!(last_lines(&directory.path().join("none")).is_empty());
}
