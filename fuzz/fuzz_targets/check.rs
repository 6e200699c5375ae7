//! The targets' work: what an input stands for, and what must hold of whatever was read. The ordinary tests run it too,
//! over `fuzz/seeds`.

use stalloc_trace::format::write_recording;
use stalloc_trace::{Event, Input, Recording, read_bytes};

/// Memory that a reader may take.
const LIMIT: u64 = 64 << 20;

/// What a target does with its input.
pub type Target = fn(&[u8]);

/// The readers' targets, by name.
pub const TARGETS: [(&str, Target); 5] =
    [("any", any), ("instance", instance), ("own_format", own_format), ("paper_log", paper_log), ("pickle", pickle)];

/// Snapshots: a pickle's instructions after its first two bytes.
pub fn pickle(data: &[u8]) {
    any(&[b"\x80\x04", data].concat());
}

/// Logs of the paper's artifact: what follows a line.
pub fn paper_log(data: &[u8]) {
    any(&[b"1 0x10 512 0\n", data].concat());
}

/// DSA instances: what follows a header.
pub fn instance(data: &[u8]) {
    any(&[b"id,lower,upper,size,alignment,offset\n", data].concat());
}

/// Our own format: contents of chunks, in chunks that are right themselves, for random bytes never get past a
/// checksum. The input is a row of kind, length (one byte), content.
pub fn own_format(data: &[u8]) {
    let mut bytes = stalloc_trace::format::MAGIC.to_vec();
    bytes.push(stalloc_trace::format::VERSION);
    let mut rest = data;
    while let [kind, length, after @ ..] = rest {
        let (content, after) = after.split_at(after.len().min(usize::from(*length)));
        rest = after;
        let payload = zstd::bulk::compress(content, 1).expect("memory takes everything");
        let mut head = [0u8; 13];
        head[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        head[4..8].copy_from_slice(&(content.len() as u32).to_le_bytes());
        head[12] = *kind;
        let mut sum = crc32fast::Hasher::new();
        sum.update(&head[..8]);
        sum.update(&head[12..]);
        sum.update(&payload);
        head[8..12].copy_from_slice(&sum.finalize().to_le_bytes());
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(&payload);
    }
    any(&bytes);
}

/// Any file, as the command line would open it: recognition and decompression too.
pub fn any(bytes: &[u8]) {
    match read_bytes(bytes, LIMIT) {
        Ok(Input::Recording(recording)) => check(&recording),
        Ok(Input::Instance(instance)) => {
            let offsets = vec![0; instance.rows.len()];
            let mut out = Vec::new();
            instance.write(&mut out, &offsets).expect("memory takes everything");
            let Ok(Input::Instance(again)) = read_bytes(&out, LIMIT * 4) else { panic!("what was written is read") };
            assert_eq!(again.lower_bound(), instance.lower_bound());
        }
        Err(fault) => assert!(!fault.to_string().is_empty()),
    }
}

fn check(recording: &Recording) {
    for trace in &recording.traces {
        let end = trace.end();
        for request in &trace.requests {
            let alloc = request.alloc.unwrap_or(0);
            assert!(request.free_requested.is_none_or(|time| alloc <= time && time < end));
            assert!(
                request.free_completed.is_none_or(|time| request.free_requested.is_some_and(|asked| asked <= time))
            );
            assert!((request.stream.0 as usize) < trace.streams.len());
            assert!((request.stack.0 as usize) < trace.stacks.len());
        }
        for event in &trace.events {
            if let Event::Alloc(id) | Event::FreeRequested(id) | Event::FreeCompleted(id) = event {
                assert!(id.index() < trace.requests.len());
            }
        }
        assert!(trace.times_us.is_empty() || trace.times_us.len() == trace.events.len());
        for state in [&trace.initial, &trace.last].into_iter().flatten() {
            for segment in &state.segments {
                let mut at = segment.address;
                for block in &segment.blocks {
                    assert_eq!(block.address, at);
                    at += block.size;
                }
                assert_eq!(at, segment.address + segment.size);
            }
        }
        trace.fingerprint();
        assert!(trace.peak_allocated() >= trace.live_curve()[0].1);
        trace.peak_reserved();
        trace.host_reads();
        let comparison = stalloc_trace::compare(trace, trace, 3);
        assert_eq!(comparison.differences, 0);
    }
    if !recording.traces.is_empty() {
        let bytes = write_recording(recording, Vec::new()).expect("what was read is written");
        let Ok(Input::Recording(again)) = read_bytes(&bytes, LIMIT * 16) else { panic!("what was written is read") };
        // It is whole now, and a dump's facts are in dumps alone.
        let mut expected = recording.traces.clone();
        for trace in &mut expected {
            (trace.is_cut, trace.facts) = (false, None);
        }
        assert!(again.traces == expected);
    }
}
