use stalloc_trace::{RawEvent, StackId};

use super::*;
use crate::tests::Maker;

const GIB: u64 = 1 << 30;

#[test]
fn the_failed_request_becomes_one_of_the_trace_and_what_follows_moves_up() {
    let mut maker = Maker::new();
    let line = maker.stack("train.py", 9, "<module>");
    maker.alloc(0, GIB, StackId::NONE);
    maker.event(RawEvent::OutOfMemory { size: 3 * GIB, device_free: 5, stack: line });
    maker.alloc(GIB, 512, StackId::NONE);
    maker.free(0);
    let mut trace = maker.trace();
    assert_eq!(trace.peak_allocated(), GIB + 512);
    let failed = count_failed(&mut trace).unwrap();
    assert_eq!((trace.peak_allocated(), trace.events.len(), trace.times_us.len()), (4 * GIB, 8, 8));
    let sizes: Vec<_> = trace.requests.iter().map(|request| (request.size, request.alloc)).collect();
    assert_eq!(sizes, [(GIB, Some(0)), (3 * GIB, Some(2)), (512, Some(5))]);
    assert_eq!((trace.request(failed).stack, trace.requests[0].free_requested), (line, Some(6)));
    for (time, event) in trace.events.iter().enumerate() {
        if let Event::Alloc(id) = event {
            assert_eq!(trace.request(*id).alloc, Some(time as Time));
        }
    }
    assert_eq!(count_failed(&mut Maker::new().trace()), None);
}

#[test]
fn a_failure_says_whether_the_empty_memory_would_have_been_enough() {
    let text = sentence(1, 2 * GIB, GIB / 2, GIB / 2, Some(3 * GIB));
    assert!(text.ends_with("512 MiB free on the device: in one piece, that would have been enough."), "{text}");
    assert!(text.contains("asking for 2.00 GiB, with 3.00 GiB reserved but empty"), "{text}");
    let text = sentence(3, 8 * GIB, GIB, GIB, Some(3 * GIB));
    assert!(text.contains("3 times, the last time asking for 8.00 GiB"), "{text}");
    assert!(text.ends_with("even in one piece, that is 4.00 GiB too little."), "{text}");
    assert!(!sentence(1, GIB, 0, 0, None).contains("empty"));
    let text = sentence(4, 0, GIB, GIB, Some(GIB));
    assert!(text.starts_with("A library asked") && !text.contains("enough"), "{text}");
    sentence(2, u64::MAX, u64::MAX, u64::MAX, Some(u64::MAX));
    let text = sentence(1, 2 * GIB, 40 * GIB, GIB, Some(GIB / 2));
    assert!(
        text.ends_with(
            "40.0 GiB free on the device, 1.00 GiB of it allowed: even in one piece, that is 512 MiB too little."
        ),
        "{text}"
    );
}
