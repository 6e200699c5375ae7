//! Blocks that stay among blocks that go, over a grid of sizes: the smallest device, ours over the better of PyTorch's two allocators:
//!
//! ```text
//! cargo run --release -p stalloc-simulator --example pins -- [STEPS]
//! ```
//!
//! In each step blocks of one size come and go, and behind each of them one of another size stays until the next step.

#[path = "../tests/found/mod.rs"]
mod found;

use std::error::Error;

use found::{Op, Order, Program};
use stalloc_simulator::{Kind, Options, smallest_capacity};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Sizes of the grid, bytes: 512 B to 64 MiB.
const SIZES: [u64; 12] =
    [512, 3 << 10, 16 << 10, 60 << 10, 200 << 10, 700 << 10, 1 << 20, 1536 << 10, 3 << 20, 9 << 20, 20 << 20, 64 << 20];

/// Bytes that come and go in each step.
const GOES: u64 = 192 << 20;

/// The program of a cell: in each step blocks come and go, and behind each of them one of another size stays until the next step; then
/// blocks of 16 MiB take the memory of those that went.
fn program(goes: u64, stays: u64, steps: u64) -> Program {
    let op = |blocks, size, life, after, after_life| Op {
        every: 1,
        blocks,
        size,
        spread: 0,
        by_step: false,
        life,
        after,
        after_life,
        stream: 0,
        order: Order::FirstFirst,
    };
    let blocks = (GOES / (goes + stays)).clamp(4, 1500);
    let large = ((blocks * goes) >> 24).max(1);
    Program { steps, ops: vec![op(blocks, goes, 1, stays, 2), op(large, 16 << 20, 1, 0, 0)] }
}

fn main() -> Result<()> {
    let steps = std::env::args().nth(1).map_or(Ok(5), |steps| steps.parse())?;
    let (mut worst, mut over, mut requests) = ((0.0, String::new()), 0, 0);
    println!("| goes \\ stays | {} |\n|---|{}", SIZES.map(|size| size.to_string()).join(" | "), "---:|".repeat(12));
    for goes in SIZES {
        let mut row = vec![goes.to_string()];
        for stays in SIZES {
            let program = program(goes, stays, steps);
            let trace = program.trace();
            requests += program.requests();
            let smallest = |kind| -> Result<u64> {
                Ok(smallest_capacity(&trace, kind, &Options::default(), &mut |_, _| {})?.unwrap_or(u64::MAX))
            };
            let ours = smallest(Kind::StallocOpen)?.max(smallest(Kind::StallocAuto)?);
            let rival = smallest(Kind::Pytorch)?.min(smallest(Kind::PytorchExpandable)?);
            let (ratio, of_peak) = (ours as f64 / rival as f64, ours as f64 / trace.peak_allocated() as f64);
            over += u32::from(ratio > 1.01);
            if ratio > worst.0 {
                worst = (ratio, format!("{goes} go, {stays} stay: {of_peak:.3} of the peak"));
            }
            row.push(format!("{ratio:.3}"));
        }
        println!("| {} |", row.join(" | "));
    }
    println!("\nworst {:.4}: {}; {over} of 144 above 1.01; {requests} requests", worst.0, worst.1);
    Ok(())
}
