//! Pairs two rounds so that few gaps part them.
//!
//! Where sizes vary, many are equal by chance: to pair as many equal requests as possible tears apart what belongs
//! together. A round differs from another one in few places: there a loop went round more often, an optimizer made its
//! states. So requests that differ may be partners, at no gain (or, where it is known how much longer one round's tensors
//! are, at a loss), and each gap costs as much as some equal ones gain
//! (alignment with affine gap costs: Gotoh, 1982; within a band).

use std::ops::Range;

use crate::sequence::{NO_LINE, Sequence};

/// Two requests of equal site and size.
const EQUAL: i32 = 8;
/// Two of one call stack, or whose sizes are as the shapes of the rounds.
const ALIKE: i32 = 6;
/// Two whose sizes differ, but not as the shapes of the rounds do.
const UNLIKE: i32 = -4;
/// Two on different streams are never partners.
const NEVER: i32 = -1 << 20;
/// A gap of any length.
const GAP: i32 = 32;

/// How far partners may be out of step beyond what the lengths of the rounds say.
const PAD: usize = 256;
/// Largest table, cells.
const CELLS: usize = 1 << 27;

/// The way that a cell was reached: two bits for each of the states below.
const PAIR: u8 = 0;
const SKIP_OURS: u8 = 1;
const SKIP_THEIRS: u8 = 2;

/// For each request of `ours`, its partner in `theirs`, both ranges of the sequence; partners count from the start of
/// `theirs`. `None` if the rounds are too long. O(length x (difference of lengths + [`PAD`])).
pub fn pair(sequence: &Sequence, ours: &Range<u32>, theirs: &Range<u32>) -> Option<Vec<Option<u32>>> {
    let (n, m) = (ours.len(), theirs.len());
    let pad = PAD.max(n.min(m) / 8);
    // Column `c` of row `i` is their request `i + c - below`.
    let below = pad + n.saturating_sub(m);
    let width = below + pad + m.saturating_sub(n) + 1;
    if (n + 1).checked_mul(width).is_none_or(|cells| cells > CELLS) {
        return None;
    }
    let scale = Scale::between(sequence, ours, theirs);
    let score = |i: usize, j: usize| {
        let (a, b) = (ours.start as usize + i, theirs.start as usize + j);
        if sequence.exact[a] == sequence.exact[b] {
            EQUAL
        } else if sequence.stream[a] != sequence.stream[b] {
            NEVER
        } else if (sequence.line[a] != NO_LINE && sequence.site[a] == sequence.site[b])
            || scale.is_some_and(|scale| scale.fits(sequence.size[a], sequence.size[b]))
        {
            ALIKE
        } else if scale.is_some() && sequence.size[a].min(sequence.size[b]) >= Scale::SMALLEST {
            UNLIKE
        } else {
            0
        }
    };
    let mut ways = vec![0u8; (n + 1) * width];
    let start = [0, -GAP, -GAP];
    let none = [NEVER; 3];
    let mut above = vec![none; width];
    let mut row = vec![none; width];
    for i in 0..=n {
        for c in 0..width {
            row[c] = none;
            let Some(j) = (i + c).checked_sub(below).filter(|&j| j <= m) else { continue };
            if i == 0 && j == 0 {
                row[c] = start;
                continue;
            }
            let mut way = 0;
            if i > 0 && j > 0 {
                let (best, from) = best(above[c]);
                row[c][0] = best + score(i - 1, j - 1);
                way |= from;
            }
            if i > 0 && c + 1 < width {
                let [pair, ours, theirs] = above[c + 1];
                let (best, from) = best([pair - GAP, ours, theirs - GAP]);
                row[c][1] = best;
                way |= from << 2;
            }
            if j > 0 && c > 0 {
                let [pair, ours, theirs] = row[c - 1];
                let (best, from) = best([pair - GAP, ours - GAP, theirs]);
                row[c][2] = best;
                way |= from << 4;
            }
            ways[i * width + c] = way;
        }
        std::mem::swap(&mut above, &mut row);
    }
    let mut partner = vec![None; n];
    let (mut i, mut c) = (n, m + below - n);
    let (_, mut state) = best(above[c]);
    loop {
        let j = i + c - below;
        if i == 0 && j == 0 {
            return Some(partner);
        }
        let way = ways[i * width + c] >> (2 * state) & 3;
        match state {
            PAIR => {
                partner[i - 1] = Some(j as u32 - 1);
                i -= 1;
            }
            SKIP_OURS => (i, c) = (i - 1, c + 1),
            _ => c -= 1,
        }
        state = way;
    }
}

/// The best of three scores, and which it is; pairs before gaps.
fn best(scores: [i32; 3]) -> (i32, u8) {
    let [pair, ours, theirs] = scores;
    if pair >= ours && pair >= theirs {
        (pair, PAIR)
    } else if ours >= theirs {
        (ours, SKIP_OURS)
    } else {
        (theirs, SKIP_THEIRS)
    }
}

/// How the sizes of two shapes of one program compare, such as those of two sequence lengths.
#[derive(Clone, Copy)]
struct Scale(f64);

impl Scale {
    /// So many requests at the beginning are compared.
    const FIRST: usize = 256;
    /// Smaller ones say little: they are rounded up.
    const SMALLEST: u64 = 16 << 10;
    /// Sizes fit a scale up to so much.
    const CLOSE: f64 = 0.02;

    /// The ratio of most requests that differ at the beginning of two rounds, if most have the same.
    fn between(sequence: &Sequence, ours: &Range<u32>, theirs: &Range<u32>) -> Option<Scale> {
        let size = |request: u32| sequence.size[request as usize];
        let pairs = ours.clone().zip(theirs.clone()).take(Scale::FIRST).map(|(a, b)| (size(a), size(b)));
        let differ = pairs.filter(|&(a, b)| a != b && a.min(b) >= Scale::SMALLEST);
        let mut ratios: Vec<f64> = differ.map(|(a, b)| a as f64 / b as f64).collect();
        ratios.sort_by(f64::total_cmp);
        let scale = Scale(*ratios.get(ratios.len() / 2)?);
        let same = ratios.iter().filter(|&&ratio| (ratio / scale.0 - 1.0).abs() < Scale::CLOSE).count();
        (2 * same > ratios.len()).then_some(scale)
    }

    /// Whether two sizes compare so, or as the square, as what has two dimensions of that length.
    fn fits(self, ours: u64, theirs: u64) -> bool {
        let ratio = ours as f64 / theirs.max(1) as f64;
        [self.0, self.0 * self.0].iter().any(|scale| (ratio / scale - 1.0).abs() < Scale::CLOSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rounds, one after the other, of requests of these sizes (granules) on one stream, without call stacks.
    fn paired(ours: &[u64], theirs: &[u64]) -> Vec<Option<u32>> {
        let size: Vec<u64> = ours.iter().chain(theirs).map(|size| size * 64 * 512).collect();
        let all = size.len();
        let exact: Vec<u32> = size.iter().map(|&size| size as u32).collect();
        let (dies, stream, line) = (vec![0; all], vec![0; all], vec![NO_LINE; all]);
        let sequence = Sequence { initial: 0, dies, site: exact.clone(), line, exact, size, stream };
        let ours = 0..ours.len() as u32;
        pair(&sequence, &ours, &(ours.end..all as u32)).expect("a small table")
    }

    fn in_order(range: Range<u32>) -> Vec<Option<u32>> {
        range.map(Some).collect()
    }

    #[test]
    fn sizes_that_are_equal_by_chance_do_not_tear_apart_what_belongs_together() {
        // Twice the length, so that everything is like its left neighbour at the other length.
        let shorter: Vec<u64> = (0..40).map(|i| 8 << (i % 5)).collect();
        let longer: Vec<u64> = shorter.iter().map(|size| 2 * size).collect();
        assert_eq!(paired(&longer, &shorter), in_order(0..40));
    }

    #[test]
    fn a_loop_that_goes_round_more_often_parts_the_rest_in_one_place() {
        let (before, round, after) = ([3, 9, 14, 5, 77], [40, 21, 22, 9, 51, 60], [8, 31, 62, 18, 99]);
        let theirs: Vec<u64> = [&before[..], &round, &after].concat();
        let ours: Vec<u64> = [&before[..], &round, &round, &after].concat();
        let partner = paired(&ours, &theirs);
        assert_eq!(partner[..5], in_order(0..5));
        assert_eq!(partner[17..], in_order(11..16));
        assert_eq!(partner[5..17].iter().flatten().count(), 6);
        let back = paired(&theirs, &ours);
        assert_eq!(back[11..], in_order(17..22));
    }

    #[test]
    fn workspaces_that_a_shorter_round_does_without_are_gaps_each() {
        // A forward pass that scales with the length; then layers with two weights each, and, if long, two workspaces.
        let (mut shorter, mut longer): (Vec<u64>, Vec<u64>) = (0..24).map(|i| (8 + i, 3 * (8 + i))).unzip();
        let mut expected = in_order(0..24);
        for _ in 0..5 {
            let start = longer.len() as u32;
            shorter.extend([16, 70, 32, 77, 8]);
            longer.extend([48, 70, 40, 41, 96, 77, 24]);
            expected.extend([0, 1, 4, 5, 6].map(|place| Some(start + place)));
        }
        assert_eq!(paired(&shorter, &longer), expected);
    }

    #[test]
    fn an_empty_round_has_no_partners() {
        assert_eq!(paired(&[], &[1, 2, 3]), []);
        assert_eq!(paired(&[1, 2, 3], &[]), [None; 3]);
    }
}
