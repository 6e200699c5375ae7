use stalloc_trace::StackId;

use super::*;

fn timed(event: RawEvent) -> Timed {
    Timed { event, time_us: 0 }
}

fn alloc(size: u64) -> Timed {
    timed(RawEvent::Alloc { address: 0, size, stream: 0, stack: StackId::NONE })
}

fn step(mark: Mark) -> Timed {
    timed(RawEvent::Mark(mark))
}

#[test]
fn a_line_says_how_far_the_recording_is() {
    let progress = RecordingProgress { steps: 3, in_step: true, requests: 1_012_345, peak_allocated: 44_238_700_000 };
    assert_eq!(progress.line(Some(4)), "step 3 of 4 recorded, 1,012,345 requests, 41.20 GiB at most");
    assert_eq!(progress.line(None), "step 3 recorded, 1,012,345 requests, 41.20 GiB at most");
    let first = RecordingProgress { steps: 0, in_step: true, requests: 7, peak_allocated: 0 };
    assert_eq!(first.line(Some(2)), "in step 1 of 2, 7 requests, 0 B at most");
    assert_eq!(RecordingProgress::default().line(None), "no step yet, 0 requests, 0 B at most");
}

#[test]
fn the_peak_is_that_of_the_fullest_device_and_steps_count_once() {
    let mut counter = ProgressCounter::default();
    let freed = timed(RawEvent::FreeRequested { address: 0, size: 1000, stream: 0 });
    for device in [2, 5] {
        counter.add(device, &[step(Mark::StepBegin), alloc(1000), freed.clone(), alloc(600), step(Mark::StepEnd)]);
        counter.add(device, &[step(Mark::StepEnd)]);
    }
    counter.add(5, &[alloc(1)]);
    let expected = RecordingProgress { steps: 1, in_step: false, requests: 5, peak_allocated: 1024 + 512 };
    assert_eq!(counter.progress, expected);
}

#[test]
fn a_device_that_grows_is_told_once_with_the_stack_of_what_stays() {
    let mut counter = ProgressCounter::default();
    for number in 0..50 {
        let event =
            RawEvent::Alloc { address: number, size: 1 << 20, stream: 0, stack: StackId(number as u32 % 3 / 2) };
        counter.add(4, &[step(Mark::StepBegin), timed(event), step(Mark::StepEnd)]);
    }
    let found = counter.take_growing();
    assert!(matches!(found[..], [(4, Growing { bytes_per_step: 0x10_0000, stack: StackId(1), .. })]), "{found:?}");
    assert_eq!(counter.take_growing(), []);
}

#[test]
fn lines_come_after_steps_ever_more_seldom_and_now_and_then_without_one() {
    let mut counter = ProgressCounter::default();
    let start = counter.last.0;
    let due = |counter: &mut ProgressCounter, ms| counter.due(start + Duration::from_millis(ms)).is_some();
    assert!(!due(&mut counter, 60_000), "nothing has been recorded");
    counter.add(0, &[step(Mark::StepBegin), alloc(8), step(Mark::StepEnd)]);
    assert!(!due(&mut counter, 900));
    assert!(due(&mut counter, 1_000));
    assert!(!due(&mut counter, 5_000), "the same step");
    counter.add(0, &[step(Mark::StepBegin), step(Mark::StepEnd)]);
    assert!(due(&mut counter, 5_001));
    counter.add(0, &[step(Mark::StepBegin), step(Mark::StepEnd)]);
    assert!(!due(&mut counter, 7_000), "the third line comes three seconds after the second");
    assert!(due(&mut counter, 8_001));
    assert!(due(&mut counter, 18_001), "a long step");
}
