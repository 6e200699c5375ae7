//! Training-like instances: micro-batches, two or three in flight, each a forward pass over layers that keeps some
//! activations and a backward pass that frees them in reverse; short-lived temporaries everywhere. Sizes repeat from
//! layer to layer; with variable sequence length each micro-batch scales all of its own.

use stalloc_planner::{Buffer, Instance};

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// What a layer does at one of its operations.
struct Operation {
    activation: u64,
    kept: bool,
    temporaries: Vec<u64>,
    gradient: u64,
}

struct Generator {
    rng: Rng,
    time: u64,
    /// Eighths.
    scale: u64,
    buffers: Vec<Buffer>,
    layers: usize,
    programs: Vec<Vec<Operation>>,
}

impl Generator {
    fn new(buffers: usize, seed: u64) -> Generator {
        let mut rng = Rng(seed);
        let mut sizes: Vec<u64> = (0..60).map(|_| 512 * ((rng.below(17_000) as f64 / 1000.0).exp2() as u64)).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes.truncate(36);
        let large = &sizes[sizes.len() / 2..];
        let mut operation = || Operation {
            activation: large[rng.below(large.len())],
            kept: rng.below(4) < 3,
            temporaries: (0..=rng.below(3)).map(|_| sizes[rng.below(sizes.len())]).collect(),
            gradient: large[rng.below(large.len())],
        };
        let programs = (6..10).map(|n| (0..n).map(|_| operation()).collect()).collect();
        let layers = (buffers / 400).clamp(4, 48);
        Generator { rng, time: 2, scale: 8, buffers: Vec::new(), layers, programs }
    }

    fn alloc(&mut self, size: u64) -> usize {
        let size = (size * self.scale / 8).next_multiple_of(512);
        self.buffers.push(Buffer { lower: self.time, upper: 0, size, alignment: 1, fixed: None });
        self.time += 2;
        self.buffers.len() - 1
    }

    fn free(&mut self, buffer: usize) {
        self.buffers[buffer].upper = self.time;
        self.time += 2;
    }

    fn forward(&mut self) -> Vec<usize> {
        let mut kept = Vec::new();
        for layer in 0..self.layers {
            for k in 0..self.programs[layer % 4].len() {
                let Operation { activation, kept: keep, ref temporaries, .. } = self.programs[layer % 4][k];
                let temporaries = temporaries.clone();
                let activation = self.alloc(activation);
                let mut temporaries: Vec<usize> = temporaries.into_iter().map(|size| self.alloc(size)).collect();
                if self.rng.below(2) == 0 {
                    temporaries.reverse();
                }
                temporaries.into_iter().for_each(|t| self.free(t));
                if keep {
                    kept.push(activation);
                } else {
                    self.free(activation);
                }
            }
        }
        kept
    }

    fn backward(&mut self, mut kept: Vec<usize>) {
        let mut gradient = self.alloc(512 << 16);
        for layer in (0..self.layers).rev() {
            for k in (0..self.programs[layer % 4].len()).rev() {
                let Operation { kept: keep, ref temporaries, gradient: size, .. } = self.programs[layer % 4][k];
                let temporaries = temporaries.clone();
                let next = self.alloc(size);
                let temporaries: Vec<usize> = temporaries.into_iter().map(|size| self.alloc(size)).collect();
                temporaries.into_iter().for_each(|t| self.free(t));
                self.free(gradient);
                gradient = next;
                if keep && let Some(activation) = kept.pop() {
                    self.free(activation);
                }
            }
        }
        self.free(gradient);
    }
}

/// About so many buffers.
pub fn training(buffers: usize, seed: u64, variable: bool) -> Instance {
    let mut g = Generator::new(buffers, seed);
    let mut in_flight = std::collections::VecDeque::new();
    loop {
        while g.buffers.len() < buffers && in_flight.len() < 3 {
            g.scale = if variable { 2 + g.rng.below(7) as u64 } else { 8 };
            let kept = g.forward();
            in_flight.push_back((g.scale, kept));
        }
        let Some((scale, kept)) = in_flight.pop_front() else { break };
        g.scale = scale;
        g.backward(kept);
    }
    Instance { buffers: g.buffers, period: None, ..Instance::default() }
}
