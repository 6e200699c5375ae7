//! Reading each format: `cargo bench -p stalloc-trace`.

#![allow(clippy::unwrap_used)]

#[path = "../examples/make_snapshot/generator.rs"]
mod generator;

use std::fmt::Write;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use stalloc_trace::format::{Writer, write_recording};
use stalloc_trace::{Input, RawEvent, Recording, StackId, read_bytes};

const LIMIT: u64 = 2 << 30;

fn main() {
    divan::main();
}

fn snapshot_bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    generator::write(&mut bytes, 20_000_000).unwrap();
    bytes
}

fn recording(bytes: &[u8]) -> Recording {
    match read_bytes(bytes, LIMIT).unwrap() {
        Input::Recording(recording) => recording,
        Input::Instance(_) => panic!("an instance"),
    }
}

fn read(bencher: Bencher<'_, '_>, bytes: &[u8], items: usize) {
    bencher
        .counter(BytesCount::new(bytes.len()))
        .counter(ItemsCount::new(items))
        .bench(|| read_bytes(divan::black_box(bytes), LIMIT).unwrap());
}

#[divan::bench(sample_count = 10)]
fn snapshot(bencher: Bencher<'_, '_>) {
    let bytes = snapshot_bytes();
    let events = recording(&bytes).traces[0].events.len();
    read(bencher, &bytes, events);
}

#[divan::bench(sample_count = 10)]
fn own_format(bencher: Bencher<'_, '_>) {
    let recording = recording(&snapshot_bytes());
    let bytes = write_recording(&recording, Vec::new()).unwrap();
    read(bencher, &bytes, recording.traces[0].events.len());
}

#[divan::bench(sample_count = 10)]
fn instance(bencher: Bencher<'_, '_>) {
    let mut text = String::from("id,lower,upper,size\n");
    for n in 0..200_000 {
        writeln!(text, "{n},{},{},{}", n * 3, n * 3 + n % 1000 + 1, n % 777 * 512).unwrap();
    }
    read(bencher, text.as_bytes(), 200_000);
}

#[divan::bench(sample_count = 10)]
fn paper_log(bencher: Bencher<'_, '_>) {
    let mut text = String::new();
    for n in 0..100_000u64 {
        writeln!(text, "1 {:#x} {} 0\n0 {:#x} {} 0", n << 20, n % 777 * 512, n << 20, n % 777 * 512).unwrap();
    }
    read(bencher, text.as_bytes(), 200_000);
}

/// What recording costs the program: an allocation and its two frees.
#[divan::bench(sample_count = 10)]
fn write_events(bencher: Bencher<'_, '_>) {
    const REQUESTS: u64 = 100_000;
    bencher.counter(ItemsCount::new(REQUESTS * 3)).bench(|| {
        let mut writer = Writer::new(Vec::new(), 0).unwrap();
        for n in 0..REQUESTS {
            let (address, size, stream) = (0x7F00_0000_0000 + (n * 7919 % 1000) * (2 << 20), n % 777 * 512, 0);
            let stack = StackId::NONE;
            writer.push(&RawEvent::Alloc { address, size, stream, stack }, Some(n)).unwrap();
            writer.push(&RawEvent::FreeRequested { address, size, stream }, Some(n)).unwrap();
            writer.push(&RawEvent::FreeCompleted { address, size, stream }, Some(n)).unwrap();
        }
        writer.finish().unwrap()
    });
}
