//! Training as nested lifetimes: what a forward pass keeps, its backward pass frees in reverse. Sizes and lifetimes have noise, so that
//! hardly two buffers are alike. The optimum is not known.

use stalloc_planner::{Buffer, Instance};

use super::generate::Rng;

/// Granularity of sizes, in bytes.
const GRANULE: u64 = 512;

/// Micro-batches in flight, at most.
const IN_FLIGHT: u64 = 4;

/// Layers between two checkpoints of each level of recomputation.
const SEGMENT: u64 = 4;

struct Step {
    rng: Rng,
    time: u64,
    buffers: Vec<Buffer>,
    /// Buffers whose end is late: when it comes.
    late: Vec<(u64, usize)>,
}

impl Step {
    fn new(seed: u64) -> Step {
        Step { rng: Rng(seed), time: 0, buffers: Vec::new(), late: Vec::new() }
    }

    /// A size of about so many granules: up to an eighth more.
    fn noisy(&mut self, granules: u64) -> u64 {
        GRANULE * (granules + self.rng.below(granules / 8 + 1))
    }

    fn begin(&mut self, size: u64) -> usize {
        self.tick();
        self.buffers.push(Buffer { lower: self.time, upper: 0, size, alignment: 1, fixed: None });
        self.buffers.len() - 1
    }

    /// One in sixteen ends some time later than it should.
    fn end(&mut self, buffer: usize) {
        self.tick();
        if self.rng.below(16) == 0 {
            self.late.push((self.time + 1 + self.rng.below(32), buffer));
        } else {
            self.buffers[buffer].upper = self.time;
        }
    }

    fn tick(&mut self) {
        self.time += 1;
        let now = self.time;
        for &(at, buffer) in &self.late {
            if at <= now {
                self.buffers[buffer].upper = now;
            }
        }
        self.late.retain(|&(at, _)| at > now);
    }

    /// Up to three buffers that live for one operation only.
    fn temporaries(&mut self) {
        let made: Vec<usize> = (0..self.rng.below(4))
            .map(|_| {
                let granules = 1 << self.rng.below(12);
                let size = self.noisy(granules);
                self.begin(size)
            })
            .collect();
        made.into_iter().for_each(|buffer| self.end(buffer));
    }

    /// What a layer keeps.
    fn kept(&mut self, layer: u64) -> usize {
        self.temporaries();
        let size = self.noisy(64 << (layer % 5));
        self.begin(size)
    }

    /// Frees it, in the course of the backward pass.
    fn free(&mut self, buffer: usize) {
        self.temporaries();
        self.end(buffer);
    }

    fn done(mut self) -> Instance {
        self.time += 64;
        self.tick();
        Instance { buffers: self.buffers, period: None, ..Instance::default() }
    }
}

/// An instance by its name, such as `stack:5000`, `micro_batches:5000` or `recomputation:5000:2`.
pub fn by_name(name: &str) -> Option<Instance> {
    let (kind, rest) = name.split_once(':')?;
    let (buffers, seed) = rest.split_once(':').unwrap_or((rest, "1"));
    let (buffers, seed) = (buffers.parse().ok()?, seed.parse().ok()?);
    match kind {
        "stack" => Some(stack(buffers, seed)),
        "micro_batches" => Some(micro_batches(buffers, seed)),
        "recomputation" => Some(recomputation(buffers, seed)),
        _ => None,
    }
}

/// One deep forward and backward pass, then the next.
fn stack(buffers: usize, seed: u64) -> Instance {
    let mut step = Step::new(seed);
    while step.buffers.len() < buffers {
        let kept: Vec<usize> = (0..200).map(|layer| step.kept(layer)).collect();
        kept.into_iter().rev().for_each(|buffer| step.free(buffer));
    }
    step.done()
}

/// Micro-batches, some of them in flight: a backward pass frees what the oldest keeps. Each has its own sequence length.
fn micro_batches(buffers: usize, seed: u64) -> Instance {
    let mut step = Step::new(seed);
    let mut in_flight = std::collections::VecDeque::new();
    loop {
        while step.buffers.len() < buffers && in_flight.len() < IN_FLIGHT as usize {
            let scale = 4 + step.rng.below(5);
            let mut kept = Vec::new();
            for layer in 0..48u64 {
                step.temporaries();
                let size = step.noisy((16 * scale) << (layer % 5));
                kept.push(step.begin(size));
            }
            in_flight.push_back(kept);
        }
        let Some(kept) = in_flight.pop_front() else { return step.done() };
        kept.into_iter().rev().for_each(|buffer| step.free(buffer));
    }
}

/// Recomputation in recomputation: of a stretch only what comes into each of its segments is kept, and a segment's backward pass
/// computes it again, as a stretch itself.
fn recomputation(buffers: usize, seed: u64) -> Instance {
    let mut step = Step::new(seed);
    while step.buffers.len() < buffers {
        recompute(&mut step, 0, SEGMENT.pow(4));
    }
    step.done()
}

fn recompute(step: &mut Step, first: u64, layers: u64) {
    let length = (layers / SEGMENT).max(1);
    let mut kept = Vec::new();
    for begin in (first..first + layers).step_by(length as usize) {
        kept.push((begin, step.kept(begin)));
        (1..length).for_each(|_| step.temporaries());
    }
    for (begin, buffer) in kept.into_iter().rev() {
        if length > 1 {
            recompute(step, begin, length);
        }
        step.free(buffer);
    }
}
