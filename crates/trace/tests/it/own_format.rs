//! Our own format: nothing is lost, a cut-off file is read up to its last flush, damage is told.

use std::io::Write;
use std::sync::{Arc, Mutex};

use stalloc_trace::format::{Writer, write_recording};
use stalloc_trace::{
    AllocatorSettings, BlockState, Event, FilePosition, Frame, Input, Mark, MemoryState, Pool, RawEvent, RecordedBlock,
    Recording, Segment, SegmentAction, StackId, StreamId, StringId, Whose, read_bytes,
};

const LIMIT: u64 = 256 << 20;

fn read(bytes: &[u8]) -> Recording {
    match read_bytes(bytes, LIMIT).unwrap() {
        Input::Recording(recording) => recording,
        Input::Instance(_) => panic!("an instance"),
    }
}

/// A file that can be looked at while a writer still owns it.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

/// A trace with everything in it.
fn record(out: Shared) -> Writer<Shared> {
    let mut writer = Writer::new(out, 3).unwrap();
    let (file, function) = (writer.string("train.py"), writer.string("forward"));
    let stack = writer.stack(&[Frame { file, function, line: 7 }]);
    assert_eq!(writer.stack(&[Frame { file, function, line: 7 }]), stack);
    let held = writer.push_initial(0x10_0000, 1000, 0, stack, false);
    let block = |address, size, request| RecordedBlock {
        address,
        size,
        requested: 0,
        state: if request { BlockState::Active } else { BlockState::Inactive },
        request: request.then_some(held),
        stack: StackId::NONE,
    };
    let segment = Segment {
        address: 0x10_0000,
        size: 2 << 20,
        stream: StreamId(0),
        pool: Pool::Small,
        private_pool: (1, 2),
        expandable: true,
        blocks: vec![block(0x10_0000, 1024, true), block(0x10_0400, (2 << 20) - 1024, false)],
    };
    writer.initial_state(&MemoryState { segments: vec![segment.clone()] }).unwrap();
    let settings = AllocatorSettings {
        expandable_segments: true,
        max_split_size: Some(1 << 29),
        garbage_collection_threshold: 0.8,
        roundup_power2_divisions: vec![(1, 4), (256, 8)],
    };
    writer.settings(&settings).unwrap();
    writer.metadata("torch", "2.15.0").unwrap();
    let name = writer.string("Optimizer.step#AdamW.step");
    let marks = [
        Mark::StepBegin,
        Mark::Phase { kind: function, micro_batch: 2 },
        Mark::ModuleEnter(function),
        Mark::HostRead { stack, bytes: 8, answer: None },
        Mark::HostRead { stack, bytes: 4, answer: Some(name) },
        Mark::ModuleExit(function),
        Mark::AnnotationBegin(name),
        Mark::AnnotationEnd(name),
        Mark::StepEnd,
    ];
    for (time, mark) in marks.into_iter().enumerate() {
        writer.push(&RawEvent::Mark(mark), Some(1_700_000_000_000_000 + time as u64)).unwrap();
    }
    let (address, size, stream) = (0x7f00_0000_0000, 4096, 0x5555);
    for action in [SegmentAction::Alloc, SegmentAction::Map, SegmentAction::Unmap, SegmentAction::Free] {
        writer.push(&RawEvent::Segment { action, address, size, stream }, Some(1_700_000_000_000_100)).unwrap();
    }
    writer.push(&RawEvent::Alloc { address, size, stream, stack }, Some(1_700_000_000_000_101)).unwrap();
    writer.push(&RawEvent::FreeRequested { address, size, stream }, Some(1_700_000_000_000_090)).unwrap();
    writer.push(&RawEvent::FreeCompleted { address, size, stream }, None).unwrap();
    writer.push(&RawEvent::OutOfMemory { size: u64::MAX, device_free: 5, stack: StackId::NONE }, None).unwrap();
    writer.push(&RawEvent::OutOfMemory { size: 7, device_free: 5, stack }, None).unwrap();
    writer.push(&RawEvent::Snapshot, None).unwrap();
    writer.last_state(&MemoryState { segments: vec![segment] }).unwrap();
    writer
}

#[test]
fn everything_that_is_written_is_read() {
    let file = Shared::default();
    record(file.clone()).finish().unwrap();
    let recording = read(&file.bytes());
    assert!(recording.warnings.is_empty(), "{:?}", recording.warnings);
    let trace = &recording.traces[0];
    assert_eq!((trace.device, trace.requests.len(), trace.events.len()), (3, 2, 19));
    assert_eq!(trace.streams, [0, 0x5555]);
    assert_eq!(trace.metadata["torch"], "2.15.0");
    assert_eq!(trace.settings.as_ref().unwrap().roundup_power2_divisions, [(1, 4), (256, 8)]);
    assert_eq!(trace.initial, trace.last);
    assert_eq!(trace.initial.as_ref().unwrap().segments[0].private_pool, (1, 2));
    assert!(matches!(trace.events[3], Event::Mark(Mark::HostRead { bytes: 8, stack: StackId(1), answer: None })));
    let Event::Mark(Mark::HostRead { bytes: 4, answer: Some(answer), .. }) = trace.events[4] else { panic!() };
    assert_eq!(trace.string(answer), "Optimizer.step#AdamW.step");
    assert_eq!(trace.times_us[8..10], [1_700_000_000_000_008, 1_700_000_000_000_100]);
    assert_eq!(trace.string(trace.stacks.get(trace.requests[1].stack)[0].file), "train.py");

    let copy = write_recording(&recording, Vec::new()).unwrap();
    assert_eq!(read(&copy).traces, recording.traces);
}

#[test]
fn call_stacks_may_be_told_after_what_they_belong_to() {
    let file = Shared::default();
    let mut writer = Writer::new(file.clone(), 0).unwrap();
    let (text, stream) = (writer.string("train.py"), 0);
    let mut stack = |line| writer.stack(&[Frame { file: text, function: text, line }]);
    let (first, second, third) = (stack(1), stack(2), stack(3));
    let alloc = |address, stack| RawEvent::Alloc { address, size: 512, stream, stack };
    for event in [
        alloc(0, StackId::NONE),
        RawEvent::FreeRequested { address: 0, size: 512, stream },
        RawEvent::FreeCompleted { address: 0, size: 512, stream },
        alloc(512, StackId::NONE),
        alloc(1024, first),
        RawEvent::OutOfMemory { size: 7, device_free: 0, stack: StackId::NONE },
        RawEvent::Stack { whose: Whose::Nth(0), stack: first },
        RawEvent::Stack { whose: Whose::LivesAt(512), stack: second },
        RawEvent::Stack { whose: Whose::LivesAt(1024), stack: third },
        RawEvent::Stack { whose: Whose::Failed, stack: third },
        RawEvent::Stack { whose: Whose::Nth(9), stack: third },
        RawEvent::Stack { whose: Whose::LivesAt(0), stack: third },
    ] {
        writer.push(&event, Some(1)).unwrap();
    }
    writer.finish().unwrap();
    let recording = read(&file.bytes());
    assert!(recording.warnings.is_empty(), "{:?}", recording.warnings);
    let trace = &recording.traces[0];
    assert_eq!(trace.requests.iter().map(|request| request.stack).collect::<Vec<_>>(), [first, second, first]);
    assert_eq!((trace.events.len(), trace.times_us.len()), (6, 6));
    assert!(matches!(trace.events[5], Event::OutOfMemory { stack, .. } if stack == third));
}

#[test]
fn several_devices_share_a_file() {
    let (one, two) = (Shared::default(), Shared::default());
    record(one.clone()).finish().unwrap();
    Writer::new(two.clone(), 9).unwrap().finish().unwrap();
    let mut both = read(&one.bytes());
    both.traces.extend(read(&two.bytes()).traces);
    let again = read(&write_recording(&both, Vec::new()).unwrap());
    assert!(again.warnings.is_empty());
    assert_eq!(again.traces, both.traces);
}

#[test]
#[ignore = "needs real recordings: STALLOC_RECORDINGS=FOLDER"]
fn real_snapshots_survive_conversion_unchanged() {
    for path in crate::common::snapshots() {
        let recording = crate::common::read(&path);
        let bytes = write_recording(&recording, Vec::new()).unwrap();
        let again = read(&bytes);
        assert!(again.warnings.is_empty());
        assert_eq!(again.traces.len(), recording.traces.len());
        for (ours, theirs) in again.traces.iter().zip(&recording.traces) {
            assert!(ours == theirs, "{} device {}", path.display(), theirs.device);
        }
    }
}

#[test]
fn what_was_flushed_is_there_whatever_happens_next() {
    let file = Shared::default();
    let mut writer = record(file.clone());
    writer.push(&RawEvent::Alloc { address: 64, size: 1, stream: 0, stack: StackId::NONE }, None).unwrap();
    writer.flush().unwrap();
    let flushed = file.bytes();
    for _ in 0..10 {
        writer.push(&RawEvent::Snapshot, None).unwrap();
    }
    // Killed: what was not flushed never gets there.
    assert_eq!(file.bytes().len(), flushed.len());
    let recording = read(&flushed);
    assert_eq!(recording.traces[0].events.len(), 20);
    assert_eq!(recording.warnings.len(), 1, "{:?}", recording.warnings);
    assert!(recording.warnings[0].contains("not finished"));
    // Zeros after the end, as some file systems leave after a crash of the machine.
    let zeros = [flushed, vec![0; 4096]].concat();
    assert_eq!(read(&zeros).traces, recording.traces);
}

#[test]
fn a_file_cut_off_anywhere_is_read_up_to_there() {
    let file = Shared::default();
    record(file.clone()).finish().unwrap();
    let whole = file.bytes();
    let mut seen = 0;
    for length in 9..whole.len() {
        let recording = read(&whole[..length]);
        assert!(!recording.warnings.is_empty() || recording.traces.is_empty(), "cut at {length}");
        let events = recording.traces.first().map_or(0, |trace| trace.events.len());
        assert!(events >= seen);
        seen = events;
    }
    assert_eq!(seen, 19);
}

#[test]
fn a_few_bytes_after_what_is_whole_are_told_as_the_beginning_of_what_was_cut_off() {
    let file = Shared::default();
    record(file.clone()).finish().unwrap();
    let whole = file.bytes();
    assert_eq!(read(&whole).warnings, Vec::<String>::new());
    for more in 1..9 {
        let recording = read(&[&whole[..], &vec![1; more]].concat());
        assert_eq!(recording.traces, read(&whole).traces);
        let [warning] = &recording.warnings[..] else { panic!("{:?}", recording.warnings) };
        assert!(warning.contains(&format!("in what begins at byte {}:", whole.len())), "{warning}");
    }
}

#[test]
fn a_compressed_file_cut_off_anywhere_is_read_up_to_its_last_whole_part() {
    let file = Shared::default();
    let mut writer = record(file.clone());
    let mut random = 1u64;
    for i in 0..60_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let alloc = RawEvent::Alloc { address: i << 40, size: random >> 36, stream: 0, stack: StackId::NONE };
        writer.push(&alloc, None).unwrap();
        if i % 4_000 == 0 {
            writer.flush().unwrap();
        }
    }
    writer.finish().unwrap();
    let whole = file.bytes();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&whole).unwrap();
    for compressed in [gzip.finish().unwrap(), zstd::encode_all(&whole[..], 3).unwrap()] {
        let all = read(&compressed).traces[0].events.len();
        let mut seen = 0;
        for part in 1..40 {
            let Ok(Input::Recording(recording)) = read_bytes(&compressed[..compressed.len() * part / 40], LIMIT) else {
                assert_eq!(seen, 0, "less than a first part has no trace");
                continue;
            };
            assert!(recording.warnings.iter().any(|warning| warning.contains("too early")), "part {part}");
            let events = recording.traces.first().map_or(0, |trace| trace.events.len());
            assert!(events >= seen && events < all);
            seen = events;
        }
        assert!(seen > all / 2, "{seen} of {all} events");
    }
    // Shorter than what is looked at to recognise a file.
    let file = Shared::default();
    record(file.clone()).finish().unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&file.bytes()).unwrap();
    let compressed = gzip.finish().unwrap();
    let recording = read(&compressed[..compressed.len() - 20]);
    assert!(recording.warnings[0].contains("too early"), "{:?}", recording.warnings);
    assert!(!recording.traces.is_empty());
}

#[test]
fn a_changed_byte_is_noticed() {
    let file = Shared::default();
    record(file.clone()).finish().unwrap();
    let whole = file.bytes();
    let original = read(&whole);
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        match read_bytes(&changed, LIMIT) {
            Err(fault) => assert!(matches!(fault.position, FilePosition::Byte(_) | FilePosition::File), "{fault}"),
            Ok(Input::Recording(recording)) => {
                assert!(!recording.warnings.is_empty(), "byte {at}");
                assert!(
                    recording.traces.is_empty() || recording.traces[0] != original.traces[0] || at > whole.len() - 40
                );
            }
            Ok(Input::Instance(_)) => panic!(),
        }
    }
}

#[test]
fn a_chunk_that_refers_to_what_is_not_there_is_refused() {
    // Chunks of random content only get past the checksum if it is right: so does this one, a frame of string 9.
    let file = Shared::default();
    let mut writer = Writer::new(file.clone(), 0).unwrap();
    let text = StringId(9);
    writer.stack(&[Frame { file: text, function: text, line: 0 }]);
    writer.finish().unwrap();
    let fault = read_bytes(&file.bytes(), LIMIT).unwrap_err();
    assert!(fault.to_string().contains("impossible value"), "{fault}");
    assert!(matches!(fault.position, FilePosition::Byte(at) if at > 9));
}

#[test]
fn a_later_version_is_refused_with_the_reason() {
    let mut bytes = stalloc_trace::format::MAGIC.to_vec();
    bytes.push(9);
    assert!(read_bytes(&bytes, LIMIT).unwrap_err().to_string().contains("version 9"));
}

#[test]
fn a_writer_can_be_handed_to_another_thread() {
    fn is_send<T: Send>(_: &T) {}
    is_send(&Writer::new(Vec::new(), 0).unwrap());
}
