//! Step functions of time, and how to keep their extremes in fewer points.

use stalloc_trace::Time;

/// Indices of at most about `limit` of `values`, with the largest and the smallest of each stretch among them, in
/// order; all of them where they are few enough. O(n).
pub fn keep_extremes(values: &[u64], limit: usize) -> Vec<usize> {
    if values.len() <= limit.max(4) {
        return (0..values.len()).collect();
    }
    let stretch = values.len().div_ceil(limit.max(4) / 2);
    let mut kept = Vec::with_capacity(limit + 2);
    for start in (0..values.len()).step_by(stretch) {
        let part = start..(start + stretch).min(values.len());
        let high = part.clone().max_by_key(|&i| values[i]).unwrap_or(start);
        let low = part.min_by_key(|&i| values[i]).unwrap_or(start);
        kept.push(high.min(low));
        if high != low {
            kept.push(high.max(low));
        }
    }
    // What holds after the last event must be right.
    if kept.last() != Some(&(values.len() - 1)) {
        kept.push(values.len() - 1);
    }
    kept
}

/// The value at a time; 0 before the first point.
pub fn value_at(points: &[(Time, u64)], time: Time) -> u64 {
    let after = points.partition_point(|&(t, _)| t <= time);
    after.checked_sub(1).map_or(0, |i| points[i].1)
}

/// The first time at which a step function has its largest value within `times`, and that value.
pub fn peak_within(points: &[(Time, u64)], times: std::ops::Range<Time>) -> (Time, u64) {
    let mut best = (times.start, value_at(points, times.start));
    let first = points.partition_point(|&(t, _)| t <= times.start);
    for &(time, value) in &points[first..] {
        if time >= times.end {
            break;
        }
        if value > best.1 {
            best = (time, value);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reduced_curve_keeps_its_highest_and_lowest_point_and_its_end() {
        let mut values: Vec<u64> = (0..10_000).map(|i| 500 + i % 7).collect();
        values[4321] = 9_000;
        values[8765] = 1;
        let kept = keep_extremes(&values, 100);
        assert!(kept.len() <= 110 && kept.is_sorted());
        assert!(kept.contains(&4321) && kept.contains(&8765) && kept.contains(&9_999));
    }

    #[test]
    fn a_short_curve_is_kept_whole() {
        assert_eq!(keep_extremes(&[3, 1, 2], 100), vec![0, 1, 2]);
        assert_eq!(keep_extremes(&[], 100), Vec::<usize>::new());
    }

    #[test]
    fn a_step_function_holds_its_value_until_the_next_point() {
        let points = vec![(2, 10), (5, 30), (6, 20)];
        assert_eq!([0, 2, 4, 5, 9].map(|t| value_at(&points, t)), [0, 10, 10, 30, 20]);
        assert_eq!(peak_within(&points, 0..10), (5, 30));
        assert_eq!(peak_within(&points, 6..10), (6, 20));
    }
}
