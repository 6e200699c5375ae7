//! Training-like traces for tests: small, seeded, with every habit that makes real ones hard.

use stalloc_trace::{Mark, RawEvent, StackId, Trace, TraceBuilder};

/// A training run to imitate.
#[derive(Clone, Debug)]
pub struct Training {
    /// Seed of everything random.
    pub seed: u64,
    /// Steps.
    pub steps: usize,
    /// Layers of the model.
    pub layers: usize,
    /// Micro-batches of a step.
    pub micro_batches: usize,
    /// Sequence lengths: step `i` has `lengths[i % len]`. Activations are as large as the length says.
    pub lengths: Vec<u64>,
    /// Experts per layer, among which tokens are routed at random; 0: dense.
    pub experts: u64,
    /// By how much of its fair share an expert's number of tokens strays at most, in percent.
    pub imbalance: u64,
    /// Evaluate after every so many steps; 0: never.
    pub evaluate_every: usize,
    /// Whether gradients live until the next step begins, rather than to the end of their own.
    pub keep_gradients: bool,
    /// Whether each step's output is replaced by the next one before it is freed.
    pub keep_output: bool,
    /// Whether every second request that lives briefly is on a second stream.
    pub two_streams: bool,
    /// Whether the recorder marked steps.
    pub marks: bool,
}

impl Default for Training {
    fn default() -> Self {
        Training {
            seed: 1,
            steps: 4,
            layers: 4,
            micro_batches: 2,
            lengths: vec![64],
            experts: 0,
            imbalance: 20,
            evaluate_every: 0,
            keep_gradients: false,
            keep_output: false,
            two_streams: false,
            marks: false,
        }
    }
}

impl Training {
    /// Its trace.
    pub fn trace(&self) -> Trace {
        let mut run = Run { config: self, builder: TraceBuilder::new(0), random: self.seed, next: 1 << 20, turn: 0 };
        run.all();
        run.builder.finish()
    }
}

/// Address and size of something alive.
type Live = u64;

struct Run<'a> {
    config: &'a Training,
    builder: TraceBuilder,
    random: u64,
    next: u64,
    turn: u64,
}

impl Run<'_> {
    fn random(&mut self, below: u64) -> u64 {
        // SplitMix64 (Steele, Lea, Flood, 2014).
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below.max(1)
    }

    fn on(&mut self, stream: u64, size: u64) -> Live {
        let address = self.next;
        self.next += size.max(1).next_multiple_of(512);
        self.builder.push(RawEvent::Alloc { address, size, stream, stack: StackId::NONE }, None);
        address
    }

    fn alloc(&mut self, size: u64) -> Live {
        self.on(0, size)
    }

    fn free(&mut self, address: Live) {
        self.builder.push(RawEvent::FreeRequested { address, size: 0, stream: 0 }, None);
        self.builder.push(RawEvent::FreeCompleted { address, size: 0, stream: 0 }, None);
    }

    /// Something that lives for a moment.
    fn brief(&mut self, size: u64) {
        self.turn += 1;
        let stream = if self.config.two_streams { self.turn % 2 } else { 0 };
        let live = self.on(stream, size);
        self.free(live);
    }

    fn all(&mut self) {
        let config = self.config;
        let weights: Vec<u64> = (0..config.layers as u64).map(|layer| 40_000 + 1_000 * layer).collect();
        for &weight in &weights {
            self.brief(weight * 2);
            self.alloc(weight);
        }
        let mut states: Vec<Live> = Vec::new();
        let mut gradients: Vec<Live> = Vec::new();
        let mut output: Option<Live> = None;
        for step in 0..config.steps {
            if config.marks {
                self.builder.push(RawEvent::Mark(Mark::StepBegin), None);
            }
            let length = config.lengths[step % config.lengths.len()];
            let input = self.alloc(length * 8);
            for gradient in gradients.drain(..) {
                self.free(gradient);
            }
            for _ in 0..config.micro_batches {
                let made = self.micro_batch(length, &weights, &mut gradients);
                if let Some(old) = output.replace(made) {
                    self.free(old);
                }
                if !config.keep_output {
                    output.take().into_iter().for_each(|made| self.free(made));
                }
            }
            for &weight in &weights {
                if states.len() < config.layers {
                    let state = self.alloc(weight * 2);
                    states.push(state);
                }
                self.brief(weight);
            }
            if !config.keep_gradients {
                for gradient in gradients.drain(..) {
                    self.free(gradient);
                }
            }
            self.free(input);
            if config.marks {
                self.builder.push(RawEvent::Mark(Mark::StepEnd), None);
            }
            if config.evaluate_every > 0 && (step + 1) % config.evaluate_every == 0 {
                for _ in 0..config.layers {
                    let hidden = self.alloc(length * 700);
                    self.brief(length * 300);
                    self.free(hidden);
                }
            }
        }
    }

    /// Forward and backward; returns the output.
    fn micro_batch(&mut self, length: u64, weights: &[u64], gradients: &mut Vec<Live>) -> Live {
        let config = self.config;
        let mut kept: Vec<Vec<Live>> = Vec::new();
        for _ in 0..config.layers {
            let mut activations = vec![self.alloc(length * 600)];
            self.brief(length * length);
            // Experts are a loop over one line of code.
            let (mut tokens, fair) = (length * 4, (length * 4).checked_div(config.experts).unwrap_or(0));
            let stray = fair * config.imbalance / 100;
            for expert in 0..config.experts {
                let drawn = fair - stray + self.random(2 * stray + 1);
                let share = if expert + 1 == config.experts { tokens } else { drawn.min(tokens) };
                tokens -= share;
                activations.push(self.alloc(share * 256));
                self.brief(1 << 20);
            }
            activations.push(self.alloc(length * 900));
            kept.push(activations);
        }
        let output = self.alloc(length * 2_000);
        for layer in (0..config.layers).rev() {
            self.brief(length * 800);
            if gradients.len() < config.layers {
                let gradient = self.alloc(weights[layer]);
                gradients.push(gradient);
            } else {
                self.brief(weights[layer]);
            }
            for activation in kept.pop().unwrap_or_default().into_iter().rev() {
                self.free(activation);
            }
        }
        output
    }
}
