//! How long a replay of about a million events takes, per allocator.
//!
//! `cargo bench -p stalloc-simulator`; an item is an event.

use divan::Bencher;
use divan::counter::ItemsCount;
use stalloc_plan::Plan;
use stalloc_simulator::{Kind, Options, replay};
use stalloc_trace::{RawEvent, StackId, Trace, TraceBuilder};

const MIB: u64 = 1 << 20;

/// Training steps of a transformer whose sequence length varies: each layer keeps activations for the backward pass and
/// uses workspaces, the backward pass gives them back in reverse.
fn trace(steps: u64) -> Trace {
    let mut builder = TraceBuilder::new(0);
    let mut next = 0;
    let mut malloc = |builder: &mut TraceBuilder, size: u64| {
        next += 1 << 30;
        builder.push(RawEvent::Alloc { address: next, size, stream: 0, stack: StackId::NONE }, None);
        next
    };
    let free = |builder: &mut TraceBuilder, address: u64| {
        builder.push(RawEvent::FreeRequested { address, size: 0, stream: 0 }, None);
        builder.push(RawEvent::FreeCompleted { address, size: 0, stream: 0 }, None);
    };
    for step in 0..steps {
        let length = 1000 + step * 37 % 200;
        let mut kept = Vec::new();
        for layer in 0..32u64 {
            for part in 1..=16u64 {
                kept.push(malloc(&mut builder, part * length * 1024 + layer % 2 * 4096));
                let small = malloc(&mut builder, length << (part % 6));
                let workspace = malloc(&mut builder, (part % 4 + 1) * length * 4096);
                free(&mut builder, small);
                free(&mut builder, workspace);
            }
        }
        while let Some(activation) = kept.pop() {
            let gradient = malloc(&mut builder, 8 * MIB);
            free(&mut builder, activation);
            free(&mut builder, gradient);
        }
    }
    builder.finish()
}

#[divan::bench(args = Kind::ALL.map(Kind::name), sample_count = 5, sample_size = 1)]
fn a_million_events(bencher: Bencher, name: &str) {
    let trace = trace(163);
    let plan = Plan { alignment: 512, ..Plan::default() };
    let options = Options { plan: Some(&plan), ..Options::default() };
    let kind = name.parse::<Kind>().expect("a kind's own name");
    bencher.counter(ItemsCount::new(trace.events.len())).bench(|| replay(&trace, kind, &options, &mut |_, _| {}));
}

fn main() {
    divan::main();
}
