//! What a request costs after very many of them on several streams: nanoseconds of processor time for each, and resident memory, a line
//! for each tenth.
//!
//!     cargo run --release -p stalloc-allocator --example many_streams -- 100000000 8 10000
//!
//! Requests, streams, live blocks. Sizes are drawn by logarithm between 512 bytes and 256 KiB, every 50th is 16 times as large. Events
//! are complete when they are asked. No steps are marked.

use stalloc_allocator::Arena;
use stalloc_device::Counting;
use stalloc_plan::Plan;

/// Device memory, bytes.
const DEVICE: u64 = 80 << 30;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn size(&mut self) -> u64 {
        let size = 512 << (self.next() % 9);
        let size = size + self.next() % size;
        if self.next().is_multiple_of(50) { 16 * size } else { size }
    }
}

/// Resident memory, KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// Processor time so far, nanoseconds.
fn processor_time() -> u64 {
    let told = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    told.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut asked = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let mut next = |default| asked.next().unwrap_or(Ok(default));
    let (requests, streams, live) = (next(10_000_000)?, next(8)?.max(1), next(10_000)?.max(1));
    let mut arena = Arena::new(Counting::new(DEVICE), &Plan::default())?;
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut blocks = Vec::with_capacity(live as usize);
    for _ in 0..live {
        let (size, stream) = (random.size(), random.next() % streams);
        blocks.push(arena.serve(size, stream).ok_or("the device is full")?.address);
    }
    println!("{:>12} requests {:>8} KiB resident", live, resident());
    for tenth in 1..=10 {
        let began = processor_time();
        for _ in 0..requests / 10 {
            let which = (random.next() % live) as usize;
            arena.free(blocks[which])?;
            let (size, stream) = (random.size(), random.next() % streams);
            blocks[which] = arena.serve(size, stream).ok_or("the device is full")?.address;
        }
        let nanoseconds = (processor_time() - began) / (requests / 10).max(1);
        println!("{:>12} requests {:>8} KiB resident {nanoseconds:>6} ns a request", tenth * requests / 10, resident());
    }
    Ok(())
}
