//! Instances near to real ones: pipelines whose micro-batches differ in size, and rectangles that fit together but for some noise.
//! Of most, the optimum is not known; that of the rectangles is at most the height of the one that was cut.

use std::collections::VecDeque;

use stalloc_planner::{Buffer, Instance};

use super::generate::{Known, Rng, cut};

/// Micro-batches in flight, and layers, of a pipeline's first rank; both differ by seed.
const IN_FLIGHT: u64 = 3;
const LAYERS: u64 = 6;

/// A step of a pipeline's rank, in order of time.
struct Pipeline {
    rng: Rng,
    time: u64,
    buffers: Vec<Buffer>,
    layers: u64,
}

/// What a micro-batch keeps of each layer: until its backward pass for inputs, and until that for weights.
struct MicroBatch {
    scale: u64,
    activations: Vec<usize>,
    weights: Vec<usize>,
}

impl Pipeline {
    fn begin(&mut self, size: u64) -> usize {
        self.time += 1;
        self.buffers.push(Buffer { lower: self.time, upper: 0, size, alignment: 1, fixed: None });
        self.buffers.len() - 1
    }

    fn end(&mut self, buffer: usize) {
        self.time += 1;
        self.buffers[buffer].upper = self.time;
    }

    fn temporary(&mut self, size: u64) {
        let buffer = self.begin(size);
        self.end(buffer);
    }

    fn forward(&mut self, zero_bubble: bool, offload: bool) -> MicroBatch {
        // Tokens of this micro-batch.
        let scale = 64 + self.rng.below(192);
        let mut made = MicroBatch { scale, activations: vec![], weights: vec![] };
        let mut leaving = VecDeque::new();
        for layer in 0..self.layers {
            self.temporary(scale * 512 * (3 + layer % 2));
            let (attention, linear) = (self.begin(scale * 512 * 4), self.begin(scale * 512 * 7));
            if offload && layer % 2 == 0 {
                leaving.push_back(attention);
            } else {
                made.activations.push(attention);
            }
            (if zero_bubble { &mut made.weights } else { &mut made.activations }).push(linear);
            self.temporary(scale * 512 * 11);
            if leaving.len() > 1
                && let Some(buffer) = leaving.pop_front()
            {
                self.end(buffer);
            }
        }
        leaving.into_iter().for_each(|buffer| self.end(buffer));
        made
    }

    /// The backward pass for inputs: what the one for weights needs besides stays.
    fn backward(&mut self, micro_batch: &mut MicroBatch, zero_bubble: bool, offload: bool) {
        let scale = micro_batch.scale;
        let mut coming = Vec::new();
        let activations = std::mem::take(&mut micro_batch.activations);
        for (layer, buffer) in activations.into_iter().rev().enumerate() {
            if offload && layer % 2 == 0 {
                coming.push(self.begin(scale * 512 * 4));
            }
            self.temporary(scale * 512 * 6);
            if zero_bubble {
                let gradient = self.begin(scale * 512 * 4);
                micro_batch.weights.push(gradient);
            }
            self.end(buffer);
            if coming.len() > 1 {
                let first = coming.remove(0);
                self.end(first);
            }
        }
        coming.into_iter().for_each(|buffer| self.end(buffer));
    }

    fn weights(&mut self, micro_batch: MicroBatch) {
        for buffer in micro_batch.weights.into_iter().rev() {
            self.temporary(micro_batch.scale * 512 * 2);
            self.end(buffer);
        }
    }
}

/// One rank's step of 1F1B or, `zero_bubble`, of ZB-H1: some micro-batches in flight, each of another size.
fn pipeline(buffers: usize, seed: u64, zero_bubble: bool, offload: bool) -> Instance {
    let mut rng = Rng(seed);
    let in_flight = (IN_FLIGHT + rng.below(4)) as usize;
    let layers = LAYERS + rng.below(8);
    let mut p = Pipeline { rng, time: 0, buffers: vec![], layers };
    let (mut forward, mut backward) = (VecDeque::new(), VecDeque::new());
    loop {
        while p.buffers.len() < buffers && forward.len() < in_flight {
            let made = p.forward(zero_bubble, offload);
            forward.push_back(made);
        }
        let Some(mut micro_batch) = forward.pop_front() else { break };
        p.backward(&mut micro_batch, zero_bubble, offload);
        backward.push_back(micro_batch);
        // The passes for weights come late, where the others wait.
        let waits = if p.buffers.len() < buffers { 2 } else { 0 };
        while backward.len() > waits {
            let Some(micro_batch) = backward.pop_front() else { break };
            p.weights(micro_batch);
        }
    }
    backward.into_iter().for_each(|micro_batch| p.weights(micro_batch));
    Instance { buffers: p.buffers, period: None, ..Instance::default() }
}

/// A cut rectangle, each lifetime less by up to so many thousandths of itself, and at least so many, at its end or at both.
fn shrunk(mut known: Known, (least, most): (u64, u64), seed: u64) -> Known {
    let mut rng = Rng(seed ^ 0x5123);
    for b in &mut known.instance.buffers {
        let length = b.upper - b.lower;
        let less = length * (1000 * least + rng.below(1000 * (most - least) + 1)) / 1_000_000;
        let at_begin = rng.below(less + 1);
        b.lower += at_begin;
        b.upper = (b.upper - (less - at_begin)).max(b.lower + 1);
    }
    known
}

/// A cut rectangle of which every lifetime begins later and ends earlier by up to so many thousandths of the whole time.
fn blurred(mut known: Known, most: u64, seed: u64) -> Known {
    let mut rng = Rng(seed ^ 0xb1a2);
    let whole = known.instance.buffers.iter().map(|b| b.upper).max().unwrap_or(0);
    for b in &mut known.instance.buffers {
        let less = |rng: &mut Rng| rng.below(whole * most / 1000 + 1).min((b.upper - b.lower) / 3);
        (b.lower, b.upper) = (b.lower + less(&mut rng), b.upper - less(&mut rng));
    }
    known
}

/// A cut rectangle bent to a ring, so that what lives across its end goes on at its begin; every end with noise.
fn ring(mut known: Known, seed: u64) -> Known {
    let period = 1 << 20;
    let mut rng = Rng(seed ^ 0x41b6);
    let turn = rng.below(period);
    for b in &mut known.instance.buffers {
        let length = (b.upper - b.lower).min(period - 1);
        b.lower = (b.lower + turn) % period;
        b.upper = b.lower + length;
    }
    known.instance.period = Some(period);
    known
}

/// Rectangles of random sides laid out cell by cell, so that most do not come from straight cuts.
fn tiling(buffers: usize, seed: u64) -> Known {
    let mut rng = Rng(seed ^ 0x7111);
    let side = ((buffers * 12) as f64).sqrt() as usize;
    let mut taken = vec![false; side * side];
    // What a cell is in time and in address.
    let mut steps = |n: usize| {
        (0..n).scan(0, |sum, _| Some(std::mem::replace(sum, *sum + 1000 + rng.below(1000)))).collect::<Vec<u64>>()
    };
    let (times, addresses) = (steps(side + 1), steps(side + 1));
    let mut buffers = Vec::new();
    let mut offsets = Vec::new();
    for cell in 0..side * side {
        if taken[cell] {
            continue;
        }
        let (t, a) = (cell % side, cell / side);
        let room = (t..side).take_while(|&u| !taken[a * side + u]).count();
        let width = (1 + rng.below(6) as usize).min(room);
        let height = (1 + rng.below(6) as usize).min(side - a);
        for row in a..a + height {
            taken[row * side + t..row * side + t + width].fill(true);
        }
        let size = addresses[a + height] - addresses[a];
        buffers.push(Buffer { lower: times[t], upper: times[t + width], size, alignment: 1, fixed: None });
        offsets.push(addresses[a]);
    }
    // Shuffled: in order of address, first fit in the order given would find it.
    for k in (1..buffers.len()).rev() {
        let other = rng.below(k as u64 + 1) as usize;
        buffers.swap(k, other);
        offsets.swap(k, other);
    }
    Known { instance: Instance { buffers, period: None, ..Instance::default() }, offsets, optimum: addresses[side] }
}

/// An instance by its name, such as `zero_bubble:1000`, or `shrunk:1000:2` for another seed.
pub fn by_name(name: &str) -> Option<Known> {
    let (kind, rest) = name.split_once(':')?;
    let (buffers, seed) = rest.split_once(':').unwrap_or((rest, "1"));
    let (buffers, seed) = (buffers.parse().ok()?, seed.parse().ok()?);
    let unknown = |instance| Known { instance, offsets: vec![], optimum: 0 };
    match kind {
        "zero_bubble" => Some(unknown(pipeline(buffers, seed, true, false))),
        "offload" => Some(unknown(pipeline(buffers, seed, true, true))),
        "1f1b" => Some(unknown(pipeline(buffers, seed, false, false))),
        "shrunk" => Some(shrunk(cut(buffers, seed), (0, 5), seed)),
        "shortened" => Some(shrunk(cut(buffers, seed), (10, 50), seed)),
        "blurred" => Some(blurred(cut(buffers, seed), 5, seed)),
        "ring" => Some(ring(shrunk(cut(buffers, seed), (0, 50), seed), seed)),
        "blurred_ring" => Some(ring(blurred(cut(buffers, seed), 5, seed), seed)),
        "tiling" => Some(tiling(buffers, seed)),
        _ => None,
    }
}
