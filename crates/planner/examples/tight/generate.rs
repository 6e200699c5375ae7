//! Instances whose optimum is known because they are made from a solution: rectangles cut from a full one, with and
//! without some of the pieces missing, chains, and pools of blocks of one size.

use stalloc_planner::{Buffer, Instance};

/// An instance and a solution of it that is as low as can be.
#[derive(Clone, Debug)]
pub struct Known {
    pub instance: Instance,
    /// Offsets of the solution that it was made from.
    pub offsets: Vec<u64>,
    /// Its peak; no solution has a lower one.
    pub optimum: u64,
}

/// SplitMix64.
pub struct Rng(pub u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `n - 1`; 0 if `n` is.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
}

/// A placed buffer: sections of time, and addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    lower: u64,
    upper: u64,
    from: u64,
    to: u64,
}

impl Piece {
    fn area(&self) -> u64 {
        (self.upper - self.lower) * (self.to - self.from)
    }

    /// In two, at an instant or at an address.
    fn halves(self, in_time: bool, at: u64) -> [Piece; 2] {
        if in_time {
            [Piece { upper: at, ..self }, Piece { lower: at, ..self }]
        } else {
            [Piece { to: at, ..self }, Piece { from: at, ..self }]
        }
    }

    /// In five, around one in the middle, so that no straight cut parts them.
    fn wheel(self, (t0, t1): (u64, u64), (a0, a1): (u64, u64)) -> [Piece; 5] {
        [
            Piece { upper: t1, to: a0, ..self },
            Piece { lower: t1, to: a1, ..self },
            Piece { lower: t0, from: a1, ..self },
            Piece { upper: t0, from: a0, ..self },
            Piece { lower: t0, upper: t1, from: a0, to: a1 },
        ]
    }
}

/// Side of the rectangle that is cut.
const SIDE: u64 = 1 << 20;

/// A full rectangle, its largest piece cut in two repeatedly until there are so many pieces. Nothing is left empty,
/// so the optimum is its height.
pub fn cut(pieces: usize, seed: u64) -> Known {
    known(rectangles(pieces, 0, seed), seed)
}

/// The same, but every eighth cut leaves five pieces around a middle (and there may be up to three more than asked for):
/// what is around a middle goes together in few ways.
pub fn wheels(pieces: usize, seed: u64) -> Known {
    known(rectangles(pieces, 8, seed), seed)
}

fn rectangles(pieces: usize, wheels: u64, seed: u64) -> Vec<Piece> {
    let mut rng = Rng(seed);
    let whole = Piece { lower: 0, upper: SIDE, from: 0, to: SIDE };
    let mut all = std::collections::BTreeMap::from([((whole.area(), 0, 0), whole)]);
    while all.len() < pieces {
        let Some((_, piece)) = all.pop_last() else { break };
        let (width, height) = (piece.upper - piece.lower, piece.to - piece.from);
        // From a quarter to three quarters of the way.
        let mut within = |from: u64, length: u64| from + length / 4 + rng.below(length / 2 + 1);
        let (t0, t1) = (within(piece.lower, width), within(piece.lower, width));
        let (a0, a1) = (within(piece.from, height), within(piece.from, height));
        // Along the longer side three times in four.
        let in_time = (width > height) != (rng.below(4) == 0);
        let pieces: Vec<Piece> = if rng.below(64) < wheels && t0 != t1 && a0 != a1 {
            piece.wheel((t0.min(t1), t0.max(t1)), (a0.min(a1), a0.max(a1))).to_vec()
        } else {
            piece.halves(in_time, if in_time { t0 } else { a0 }).to_vec()
        };
        all.extend(pieces.into_iter().map(|p| ((p.area(), p.lower, p.from), p)));
    }
    all.into_values().collect()
}

/// The same, from which so many per cent of the pieces were taken; but none that lives at the middle of the time, where
/// the load is the rectangle's height, so that this is still the optimum.
pub fn slack(pieces: usize, percent: u64, seed: u64) -> Known {
    let mut rng = Rng(seed ^ 0x51ac);
    let mut all = rectangles(pieces, 0, seed);
    let mut gone = all.len() as u64 * percent / 100;
    let mut tries = 100 * all.len();
    while gone > 0 && tries > 0 {
        let k = rng.below(all.len() as u64) as usize;
        if !(all[k].lower..all[k].upper).contains(&(SIDE / 2)) {
            all.swap_remove(k);
            gone -= 1;
        }
        tries -= 1;
    }
    known(all, seed)
}

/// Slack of 15 %, and every tenth buffer fixed where the solution has it.
pub fn walls(pieces: usize, seed: u64) -> Known {
    let mut known = slack(pieces, 15, seed);
    for (buffer, &offset) in known.instance.buffers.iter_mut().zip(&known.offsets).step_by(10) {
        buffer.fixed = Some(offset);
    }
    known
}

/// Buffers of which each lives together with the one before and the one after: the odd ones lie at the bottom, the
/// even ones at the top, and the optimum is the largest sum of two neighbours.
pub fn chain(buffers: usize, seed: u64) -> Known {
    let mut rng = Rng(seed);
    let sizes: Vec<u64> = (0..buffers).map(|_| 1 + rng.below(SIDE)).collect();
    let most = sizes.windows(2).map(|w| w[0] + w[1]).chain(sizes.iter().copied()).max().unwrap_or(0);
    let piece = |(k, &size): (usize, &u64)| {
        let from = if k % 2 == 0 { 0 } else { most - size };
        Piece { lower: k as u64, upper: k as u64 + 2, from, to: from + size }
    };
    known(sizes.iter().enumerate().map(piece).collect(), seed)
}

/// Addresses shared out among pools, each with blocks of its own size, all in use at the middle of the time and now and
/// then otherwise: the optimum is what all blocks take together.
pub fn pools(buffers: usize, seed: u64) -> Known {
    let mut rng = Rng(seed);
    let (mut all, mut from) = (Vec::new(), 0);
    while all.len() < buffers {
        // A pool of blocks of one size.
        let (size, blocks) = (1 + rng.below(SIDE / 64), 1 + rng.below(16));
        for _ in 0..blocks {
            let mut lower = rng.below(SIDE / 64);
            while lower < SIDE {
                let mut upper = (lower + 1 + rng.below(SIDE / 8)).min(SIDE);
                let after = upper + rng.below(SIDE / 64);
                // In use at the middle: what ends before it and is followed by a pause there lasts longer.
                if upper <= SIDE / 2 && after > SIDE / 2 {
                    upper = SIDE / 2 + 1;
                }
                all.push(Piece { lower, upper, from, to: from + size });
                lower = after.max(upper);
            }
            from += size;
        }
    }
    known(all, seed)
}

/// Shuffled, so that the order says nothing.
fn known(mut pieces: Vec<Piece>, seed: u64) -> Known {
    let mut rng = Rng(seed ^ 0x0bde);
    for k in (1..pieces.len()).rev() {
        pieces.swap(k, rng.below(k as u64 + 1) as usize);
    }
    let buffer = |p: &Piece| Buffer { lower: p.lower, upper: p.upper, size: p.to - p.from, alignment: 1, fixed: None };
    Known {
        instance: Instance { buffers: pieces.iter().map(buffer).collect(), period: None, ..Instance::default() },
        offsets: pieces.iter().map(|p| p.from).collect(),
        optimum: pieces.iter().map(|p| p.to).max().unwrap_or(0),
    }
}

/// An instance by its name, such as `cut:5000`, `slack15:300`, `chain:1000` or `pools:1000`; `cut:5000:2` is another of its kind,
/// from the seed 2 (otherwise 1).
pub fn by_name(name: &str) -> Option<Known> {
    let (kind, rest) = name.split_once(':')?;
    let (buffers, seed) = rest.split_once(':').unwrap_or((rest, "1"));
    let (buffers, seed) = (buffers.parse().ok()?, seed.parse().ok()?);
    match kind {
        "cut" => Some(cut(buffers, seed)),
        "walls" => Some(walls(buffers, seed)),
        "wheels" => Some(wheels(buffers, seed)),
        "chain" => Some(chain(buffers, seed)),
        "pools" => Some(pools(buffers, seed)),
        _ => Some(slack(buffers, kind.strip_prefix("slack")?.parse().ok()?, seed)),
    }
}
