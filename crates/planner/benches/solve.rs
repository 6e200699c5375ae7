//! How long plans take: `cargo bench -p stalloc-planner`.

#[path = "../examples/table/synthetic.rs"]
mod synthetic;

use divan::Bencher;
use stalloc_planner::{Buffer, Effort, Instance, SolveOptions, solve};

fn main() {
    divan::main();
}

/// Planning inside a running job.
#[divan::bench(args = [1_000, 10_000, 100_000], sample_count = 10)]
fn quick(bencher: Bencher, buffers: usize) {
    let instance = synthetic::training(buffers, 1, false);
    let options = SolveOptions { effort: Effort::Quick, ..SolveOptions::default() };
    bencher.bench(|| solve(&instance, &options));
}

/// Sequence lengths that vary: best fit, cores and exact search.
#[divan::bench(args = [1_000, 10_000], sample_count = 5)]
fn variable(bencher: Bencher, buffers: usize) {
    let instance = synthetic::training(buffers, 1, true);
    let options = SolveOptions { work_limit: Some(50_000_000), ..SolveOptions::default() };
    bencher.bench(|| solve(&instance, &options));
}

/// A full rectangle cut at random: the exact search has to find the cuts again.
#[divan::bench(args = [20, 50, 100], sample_count = 5)]
fn without_waste(bencher: Bencher, buffers: usize) {
    let instance = cut(buffers);
    let options = SolveOptions { work_limit: Some(50_000_000), ..SolveOptions::default() };
    bencher.bench(|| solve(&instance, &options));
}

/// A rectangle cut in two, and its largest piece again, until there are so many.
fn cut(buffers: usize) -> Instance {
    let mut pieces = vec![(0u64, 1024u64, 1024u64)];
    let mut random = 1u64;
    while pieces.len() < buffers {
        pieces.sort_unstable_by_key(|&(lower, upper, size)| (upper - lower) * size);
        let Some((lower, upper, size)) = pieces.pop() else { break };
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let share = 4 + (random >> 60);
        let (width, height) = ((upper - lower) * share / 24, size * share / 24);
        if upper - lower > size {
            pieces.extend([(lower, lower + width, size), (lower + width, upper, size)]);
        } else {
            pieces.extend([(lower, upper, height), (lower, upper, size - height)]);
        }
    }
    let buffer = |(lower, upper, size)| Buffer { lower, upper, size, alignment: 1, fixed: None };
    Instance { buffers: pieces.into_iter().map(buffer).collect(), period: None, ..Instance::default() }
}
