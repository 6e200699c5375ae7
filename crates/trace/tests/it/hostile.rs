//! Files that mean harm: clear errors in bounded time and memory, and nothing worse.

#[path = "../../../../fuzz/fuzz_targets/check.rs"]
mod check;
use std::io::Write;
use std::path::Path;

use crate::common::pickled::{LIMIT, dict, entry, float, int, pickle, recording, snapshot, text};
use proptest::prelude::*;
use stalloc_trace::format::write_recording;
use stalloc_trace::{Fault, FilePosition, RawEvent, StackId, TraceBuilder, open, read_bytes};

fn refused(bytes: &[u8]) -> Fault {
    read_bytes(bytes, LIMIT).expect_err("a refusal")
}

#[test]
fn a_pickle_that_would_run_code_is_refused_by_the_name_of_it() {
    let system = pickle(&[b"cos\nsystem\n", &text("rm -rf /"), b"\x85R."]);
    let fault = refused(&system);
    assert_eq!(fault.position, FilePosition::Byte(2));
    assert!(fault.to_string().contains("os.system"), "{fault}");
    let stacked = pickle(&[&text("builtins"), &text("exec"), b"\x93."]);
    assert!(refused(&stacked).to_string().contains("builtins.exec"));
    // Every instruction that imports, calls, builds, or asks for something outside.
    for op in
        [&b"R"[..], b"b", b"o", b"\x81", b"\x92", b"\x82\x01", b"\x83\x01\x00", b"Pname\n", b"Q", b"\x97", b"\x98"]
    {
        let fault = refused(&pickle(&[b"}}", op, b"."]));
        assert!(fault.to_string().contains("plain data only"), "{fault}");
    }
}

#[test]
fn a_pickle_of_something_else_is_told_from_a_snapshot() {
    for other in [&b"N."[..], b"}.", b"K\x05.", b"]\x85."] {
        assert!(refused(&pickle(&[other])).to_string().contains("no memory snapshot"));
    }
    assert!(refused(&pickle(&[b"I5\n."])).to_string().contains("protocol 0 or 1"));
    assert!(refused(b"\x80\x09}.").to_string().contains("known"));
}

#[test]
fn lengths_that_nothing_backs_take_no_memory() {
    let huge = (1u64 << 60).to_le_bytes();
    for parts in [
        [&b"\x8D"[..], &huge],
        [b"\x8E", &huge],
        [b"\x96", &huge],
        [b"X", &[0xFF; 4]],
        [b"B", &[0xFF; 4]],
        [b"X", &[0xFF, 0xFF, 0xFF, 0x0F]],
        [b"T", &[0xFF; 4]],
        [b"\x8B", &[0xFF, 0xFF, 0xFF, 0x7F]],
        [b"\x8B", &[0xFF; 4]],
        [b"\x95", &huge],
        // Object number 2^32 - 1, without those before it.
        [b"Nr", &[0xFF; 4]],
        [b"j", &[0xFF; 4]],
    ] {
        assert!(matches!(refused(&pickle(&[parts[0], parts[1]])).position, FilePosition::Byte(_)));
    }
    let trace = stalloc_trace::format::Writer::new(Vec::new(), 0).unwrap().finish().unwrap();
    let mut long = trace.clone();
    long.extend_from_slice(&[0xFF; 13]);
    assert!(!recording(&long).warnings.is_empty());
}

#[test]
fn more_memory_at_once_than_any_device_has_is_refused() {
    let (tib, most) = (1 << 40, 64);
    let held = |count: i64, size: i64| {
        let blocks: Vec<_> = (1..=count).map(|at| entry("alloc", &int(at << 44), &int(size))).collect();
        snapshot(&blocks, &[])
    };
    assert_eq!(recording(&held(most, tib)).traces[0].peak_allocated(), 64 << 40);
    assert!(refused(&held(most, tib + 512)).to_string().contains("more than any has"));
    refused(&held(1, 1 << 60));
    refused(&held(10, 1 << 62));
    let segment = |size: i64| {
        let numbers = [("device", int(0)), ("address", int(1 << 20)), ("total_size", int(size)), ("stream", int(0))];
        let fields = numbers.each_ref().map(|(name, value)| (*name, value.as_slice()));
        snapshot(&[], &[dict(&[&fields[..], &[("segment_type", &text("large")), ("blocks", b"]")]].concat())])
    };
    assert_eq!(recording(&segment(64 << 40)).traces.len(), 1);
    refused(&segment((64 << 40) + 512));
}

#[test]
fn nesting_of_any_depth_does_not_overflow_the_stack() {
    const DEEP: usize = 1_000_000;
    refused(&pickle(&[&vec![b'('; DEEP]]));
    // Lists in lists, at every place where a snapshot has a list.
    let nested = [vec![b']'; DEEP], vec![b'a'; DEEP - 1]].concat();
    refused(&pickle(&[&nested, b"."]));
    let entry = dict(&[("action", &text("alloc")), ("addr", b"K\x01"), ("size", b"K\x01"), ("frames", &nested)]);
    assert_eq!(recording(&snapshot(&[entry], &[])).traces[0].requests.len(), 1);
    refused(&snapshot(&[nested], &[]));
    // A list that holds itself.
    refused(&pickle(&[b"]\x94(h\x00h\x00e."]));
    refused(&pickle(&[b"}(", &text("device_traces"), b"]\x94(h\x01h\x01eu."]));
}

#[test]
fn a_stack_that_runs_empty_is_an_error() {
    for ops in [
        &b"."[..],
        b"0.",
        b"1.",
        b"2.",
        b"a.",
        b"e.",
        b"s.",
        b"u.",
        b"t.",
        b"\x85.",
        b"\x87.",
        b"}(K\x01u.",
        b"\x94.",
        b"q\x00.",
        b"K\x01K\x02a.",
        b"K\x01(K\x02e.",
        b"](a.",
        b"(a.",
        b"}(s.",
        b"](}K\x01s",
        // Below an open mark there is nothing to take.
        b"NN(\x86t.",
        b"l.",
        b"d.",
        b"(K\x01d.",
        b"\x90.",
        b"\x91.",
    ] {
        refused(&pickle(&[ops]));
    }
}

#[test]
fn a_pickle_that_ends_in_the_middle_of_a_number_is_said_to_end_there() {
    for bytes in 0..8 {
        let cut = pickle(&[b"](G", &[0; 8][..bytes]]);
        let fault = refused(&cut);
        assert_eq!(fault.position, FilePosition::Byte(cut.len() as u64), "{fault}");
        assert!(fault.to_string().contains("ends too early"), "{fault}");
    }
}

#[test]
fn sizes_and_addresses_that_cannot_be_are_named_with_their_place() {
    let one: &[u8] = b"K\x01";
    let position = |bytes: &[u8]| match refused(bytes).position {
        FilePosition::Path(path) => path,
        other => panic!("{other:?}"),
    };
    for size in [
        int(-1),
        int(i64::MIN),
        float(f64::NAN),
        float(512.0),
        text("512"),
        b"N".to_vec(),
        vec![0x8A, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        vec![0x88],
    ] {
        let bytes = snapshot(&[entry("alloc", one, one), entry("alloc", one, &size)], &[]);
        assert_eq!(position(&bytes), "device_traces[0][1].size");
        let segment = dict(&[("address", one), ("total_size", &size)]);
        assert_eq!(position(&snapshot(&[], &[segment])), "segments[0].total_size");
    }
    let top = vec![0x8A, 9, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0];
    assert_eq!(position(&snapshot(&[entry("alloc", &top, one)], &[])), "device_traces[0][0].size");
    let missing = dict(&[("action", &text("alloc")), ("size", one)]);
    assert_eq!(position(&snapshot(&[missing], &[])), "device_traces[0][0].addr");
    let segment = |address: i64, size: i64| dict(&[("address", &int(address)), ("total_size", &int(size))]);
    assert!(refused(&snapshot(&[], &[segment(0, 1024), segment(512, 1024)])).to_string().contains("overlap"));
    let block = dict(&[("address", &int(512)), ("size", &int(1024)), ("state", &text("inactive"))]);
    let blocks = [b"](".to_vec(), block, b"e".to_vec()].concat();
    let segment = dict(&[("address", &int(0)), ("total_size", &int(1024)), ("blocks", &blocks)]);
    assert_eq!(position(&snapshot(&[], &[segment])), "segments[0].blocks[0]");
}

#[test]
fn sizes_as_large_as_can_be_do_not_overflow() {
    let mut builder = TraceBuilder::new(0);
    for address in 0..8 {
        let alloc = RawEvent::Alloc { address, size: i64::MAX as u64, stream: 0, stack: StackId::NONE };
        builder.push(alloc, None);
    }
    let trace = builder.finish();
    assert_eq!(trace.peak_allocated(), u64::MAX);
    assert!(trace.fingerprint() > 0);
}

#[test]
fn entries_that_contradict_the_segments_are_told_and_read() {
    let one = |action, address: i64| entry(action, &int(address << 20), &int(512));
    let entries = [
        one("alloc", 1),
        one("alloc", 1),
        one("free_completed", 1),
        one("free_completed", 1),
        one("free_requested", 2),
        one("segment_alloc", 5),
        one("segment_map", 6),
        one("segment_unmap", 6),
        one("segment_unmap", 6),
        one("free", 9),
        one("made_up", 9),
    ];
    let segment = dict(&[("address", &int(1 << 20)), ("total_size", &int(2 << 20))]);
    let recording = recording(&snapshot(&entries, &[segment]));
    assert_eq!(recording.warnings.len(), 3, "{:?}", recording.warnings);
    for request in &recording.traces[0].requests {
        assert_eq!(
            request.free_requested.is_none(),
            request.free_completed.is_none() && request.free_requested.is_none()
        );
        assert!(request.free_requested.unwrap_or(u32::MAX) >= request.alloc.unwrap_or(0));
    }
}

#[test]
fn more_devices_than_any_machine_has_are_refused() {
    let million = [b"](".to_vec(), vec![b']'; 1_000_000], b"e".to_vec()].concat();
    let empty = pickle(&[b"}(", &text("device_traces"), &million, b"u."]);
    assert!(recording(&empty).traces.is_empty());
    let one = [b"](".to_vec(), entry("snapshot", b"N", b"N"), b"e\x94".to_vec()].concat();
    let again = [b"](".to_vec(), one, b"h\x00".repeat(1_000_000), b"e".to_vec()].concat();
    let fault = refused(&pickle(&[b"}(", &text("device_traces"), &again, b"u."]));
    assert!(fault.to_string().contains("devices") || fault.to_string().contains("memory"), "{fault}");
    let far = dict(&[("device", &int(1 << 40)), ("address", b"K\x00"), ("total_size", b"K\x01")]);
    assert!(refused(&snapshot(&[], &[far])).to_string().contains("device"));
}

#[test]
fn a_few_bytes_that_stand_for_many_are_refused_before_memory_runs_out() {
    // A million times the same entry, two bytes each.
    let one = [entry("snapshot", b"N", b"N"), b"\x94".to_vec()].concat();
    let many = snapshot(&[one, b"h\x00".repeat(1_000_000)], &[]);
    assert!(refused(&many).to_string().contains("MiB of memory"));
    // Segments that share a list of blocks.
    let block = [dict(&[("size", b"K\x00"), ("state", &text("inactive"))]), b"\x94".to_vec()].concat();
    let blocks = [b"](".to_vec(), block, b"h\x00".repeat(100_000), b"e\x94".to_vec()].concat();
    let segment =
        |n: i64, blocks: &[u8]| dict(&[("address", &int(n << 20)), ("total_size", b"K\x00"), ("blocks", blocks)]);
    let first = segment(0, &blocks);
    let rest: Vec<u8> = (1..1000).flat_map(|n| segment(n, b"h\x01")).collect();
    assert!(refused(&snapshot(&[], &[first, rest])).to_string().contains("MiB of memory"));
    // Stacks as long as the file.
    let frames = [b"](".to_vec(), b"}".to_vec(), b"\x94".to_vec(), b"h\x00".repeat(5_000_000), b"e".to_vec()].concat();
    let deep = dict(&[("action", &text("alloc")), ("addr", b"K\x01"), ("size", b"K\x01"), ("frames", &frames)]);
    assert!(refused(&snapshot(&[deep], &[])).to_string().contains("MiB of memory"));
}

/// Compresses `start` and then `count` times `unit`.
fn bomb(start: &[u8], unit: &[u8], count: usize, gzip: bool) -> Vec<u8> {
    fn fill<W: Write>(mut out: W, start: &[u8], unit: &[u8], count: usize) -> W {
        let block = unit.repeat(1 + (1 << 20) / unit.len());
        out.write_all(start).unwrap();
        for _ in 0..count * unit.len() / block.len() {
            out.write_all(&block).unwrap();
        }
        out
    }
    if gzip {
        let out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        fill(out, start, unit, count).finish().unwrap()
    } else {
        fill(zstd::Encoder::new(Vec::new(), 1).unwrap(), start, unit, count).finish().unwrap()
    }
}

#[test]
fn decompression_bombs_are_refused() {
    const MANY: usize = 256 << 20;
    for gzip in [false, true] {
        let memory = |bytes: &[u8]| {
            let fault = refused(bytes);
            assert!(fault.to_string().contains("MiB of memory"), "{fault}");
        };
        memory(&bomb(b"\x80\x04", b"]", MANY, gzip));
        memory(&bomb(b"", b"1 0x10 5 0\n", MANY / 11, gzip));
        memory(&bomb(b"id,lower,upper,size\n", b"1,2,3,4\n", MANY / 8, gzip));
        let long = refused(&bomb(b"id,lower,upper,size\n", b"1", MANY, gzip));
        assert!(long.to_string().contains("line of over"), "{long}");
        let long = refused(&bomb(b"1 0x10 5 0\n", b"1", MANY, gzip));
        assert!(long.to_string().contains("line 2: is longer than"), "{long}");
        refused(&bomb(b"", b"\0", MANY, gzip));
    }
}

/// Small files of every format.
fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let int_of = |n: i64| int(n << 20);
    let frames =
        [b"](".to_vec(), dict(&[("filename", &text("a.py")), ("name", &text("f")), ("line", b"K\x03")]), b"e".to_vec()]
            .concat();
    let alloc = dict(&[
        ("action", &text("alloc")),
        ("addr", &int_of(1)),
        ("size", b"M\x00\x10"),
        ("stream", b"K\x00"),
        ("time_us", &int(1_700_000_000_000_000)),
        ("frames", &frames),
    ]);
    let block = dict(&[
        ("address", &int_of(1)),
        ("size", b"M\x00\x10"),
        ("requested_size", b"M\x00\x10"),
        ("state", &text("active_allocated")),
        ("frames", b"]"),
    ]);
    let blocks = [b"](".to_vec(), block, b"e".to_vec()].concat();
    let segment = dict(&[
        ("device", b"K\x00"),
        ("address", &int_of(1)),
        ("total_size", b"J\x00\x00\x20\x00"),
        ("segment_type", &text("small")),
        ("segment_pool_id", b"K\x00K\x00\x86"),
        ("blocks", &blocks),
    ]);
    let snapshot = snapshot(
        &[alloc, entry("free_requested", &int_of(7), b"K\x09"), entry("free_completed", &int_of(7), b"K\x09")],
        &[segment],
    );
    let own = write_recording(&recording(&snapshot), Vec::new()).unwrap();
    let csv = b"id,lower,upper,size,alignment\n0,0,5,10,\n1,3,9,20,4\n".to_vec();
    let log = b"1 0x10 5 0\nIteration Index : 0\nmicro-batch : F\na->B Layer : F-start\n0 0x10 5 0\n".to_vec();
    let gzip = {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(&snapshot).unwrap();
        out.finish().unwrap()
    };
    let zstd = zstd::encode_all(&snapshot[..], 1).unwrap();
    vec![("snapshot", snapshot), ("own", own), ("csv", csv), ("log", log), ("gzip", gzip), ("zstd", zstd)]
}

#[test]
fn a_file_cut_off_anywhere_is_refused_or_read_in_part() {
    for (name, whole) in samples() {
        read_bytes(&whole, LIMIT).unwrap();
        for length in 0..whole.len() {
            let result = read_bytes(&whole[..length], LIMIT);
            // Text and our own format make sense up to where they end.
            assert!(result.is_err() || matches!(name, "own" | "csv" | "log"), "{name} cut at {length}");
        }
    }
}

#[test]
fn an_error_names_the_file_the_place_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.pickle");
    std::fs::write(&path, snapshot(&[entry("alloc", b"K\x01", &int(-3))], &[])).unwrap();
    let error = open(&path, &mut |_, _| {}).unwrap_err().to_string();
    let rest = error.strip_prefix(&format!("{}: ", path.display())).unwrap();
    assert_eq!(
        rest,
        "device_traces[0][0].size: is -3, not a number of 64 bits from 0 up; the file is damaged or incomplete, record or copy it again"
    );
    for (path, says) in [(Path::new("/nowhere/at.all"), "no such file"), (folder.path(), "is a directory")] {
        let error = open(path, &mut |_, _| {}).unwrap_err().to_string();
        assert!(error.contains(says) && error.starts_with(&path.display().to_string()), "{error}");
    }
}

#[test]
fn what_fuzzing_starts_from_and_what_it_found_does_no_harm() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    for (target, run) in check::TARGETS {
        let mut count = 0;
        for file in std::fs::read_dir(seeds.join(target)).unwrap() {
            run(&std::fs::read(file.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count > 0, "no seeds for {target}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn damage_of_any_kind_does_no_harm(sample in 0usize..6, edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..3), 1..8)) {
        let mut bytes = samples().swap_remove(sample).1;
        for (at, byte, kind) in edits {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => { bytes.remove(at); }
            }
        }
        check::any(&bytes);
    }
}
