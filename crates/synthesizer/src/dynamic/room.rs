//! How much room to keep for what differs from step to step.

use stalloc_trace::ROUNDING;

/// With fewer runs than this, nothing is known of how a group varies but its range.
const FEW: usize = 4;
/// A group scales with the step if the step's total explains this share of its variance.
const SCALES: f64 = 0.9;

/// Room beyond what was seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Headroom {
    /// A home holds its group in steps that deviate from the mean by this many standard deviations: 2 for about 98
    /// of 100 steps.
    pub deviations: f64,
}

impl Headroom {
    /// The share of steps in which a home holds its group, if what varies is normally distributed.
    pub fn share_of_steps(&self) -> f64 {
        // The normal distribution by the error function, to 1.5e-7 (Abramowitz and Stegun, 7.1.26).
        let x = self.deviations.abs() / std::f64::consts::SQRT_2;
        let t = 1.0 / (1.0 + 0.327_591_1 * x);
        let terms = [0.254_829_592, -0.284_496_736, 1.421_413_741, -1.453_152_027, 1.061_405_429];
        let tail = terms.iter().rev().fold(0.0, |sum, term| (sum + term) * t) * (-x * x).exp() / 2.0;
        if self.deviations < 0.0 { tail } else { 1.0 - tail }
    }

    /// Bytes for a group that took `per_run` bytes in steps whose dynamic requests took `total` together.
    ///
    /// A group that scales with the step (longer sequences make all of it larger) needs what the largest step seen
    /// gives it, and room for how far it strays from that line; any other needs room for how far it strays from its
    /// mean. Never less than what was seen.
    pub fn room(&self, per_run: &[u64], total: &[u64]) -> u64 {
        // A step without the group says nothing of how large it is where it is.
        let (per_run, total): (Vec<u64>, Vec<u64>) = per_run.iter().zip(total).filter(|(bytes, _)| **bytes > 0).unzip();
        let most = per_run.iter().copied().max().unwrap_or(0);
        let least = per_run.iter().copied().min().unwrap_or(0);
        if per_run.len() < FEW {
            return round_up(most.saturating_add((most - least) / 2));
        }
        let (mean, slope, rest) = fit(&per_run, &total);
        let largest = total.iter().copied().max().unwrap_or(0) as f64;
        let middle = total.iter().map(|&bytes| bytes as f64).sum::<f64>() / total.len() as f64;
        let expected = mean + slope * (largest - middle) + self.deviations * rest;
        round_up(most.max(expected as u64))
    }
}

/// Mean, slope against the total (0 if that explains little), and what is left of the standard deviation.
fn fit(per_run: &[u64], total: &[u64]) -> (f64, f64, f64) {
    let count = per_run.len() as f64;
    let mean_of = |values: &[u64]| values.iter().map(|&v| v as f64).sum::<f64>() / count;
    let (mean, middle) = (mean_of(per_run), mean_of(total));
    let (mut own, mut both, mut all) = (0.0, 0.0, 0.0);
    for (&bytes, &step) in per_run.iter().zip(total) {
        let (d, t) = (bytes as f64 - mean, step as f64 - middle);
        own += d * d;
        both += d * t;
        all += t * t;
    }
    let explained = if own > 0.0 && all > 0.0 { both * both / (own * all) } else { 0.0 };
    if explained >= SCALES {
        (mean, both / all, ((own - both * both / all).max(0.0) / (count - 1.0)).sqrt())
    } else {
        (mean, 0.0, (own / (count - 1.0)).sqrt())
    }
}

fn round_up(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(ROUNDING).unwrap_or(bytes - bytes % ROUNDING)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: Headroom = Headroom { deviations: 2.0 };

    #[test]
    fn what_never_varies_needs_no_headroom() {
        assert_eq!(TWO.room(&[5120; 6], &[9999, 1, 5, 7, 9, 11]), 5120);
        assert_eq!(TWO.room(&[5120; 2], &[1, 2]), 5120);
    }

    #[test]
    fn more_deviations_hold_more_steps() {
        for (deviations, share) in [(-1.0, 0.158_655), (0.0, 0.5), (1.0, 0.841_345), (2.0, 0.977_250), (8.0, 1.0)] {
            let found = Headroom { deviations }.share_of_steps();
            assert!((found - share).abs() < 1e-6, "{deviations}: {found}");
        }
    }

    #[test]
    fn what_is_not_there_in_every_step_needs_no_more_than_where_it_is() {
        assert_eq!(TWO.room(&[0, 5120, 0, 0, 0, 5120], &[1, 2, 3, 4, 5, 6]), 5120);
        assert_eq!(TWO.room(&[0, 5120, 5120, 5120, 0, 5120], &[1, 2, 3, 4, 5, 6]), 5120);
    }

    #[test]
    fn what_scales_with_the_step_is_planned_for_the_largest_and_no_more() {
        let lengths = [100u64, 700, 300, 400, 500, 200];
        let per_run: Vec<u64> = lengths.iter().map(|l| 5120 + l * 512).collect();
        let total: Vec<u64> = lengths.iter().map(|l| 40_000 + l * 51_200).collect();
        assert_eq!(TWO.room(&per_run, &total), 5120 + 700 * 512);
    }

    #[test]
    fn what_varies_by_itself_gets_room_by_its_deviation() {
        let room = TWO.room(&[51_200, 61_440, 51_200, 61_440], &[9, 9, 9, 9]);
        // Mean 56,320, standard deviation 5,912.
        assert_eq!(room, round_up(56_320 + 2 * 5_912));
    }
}
