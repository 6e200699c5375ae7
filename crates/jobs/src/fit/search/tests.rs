use super::*;

/// Searches with an oracle; the answer and the trials.
fn search(count: u64, oracle: impl Fn(u64) -> Point) -> (Option<u64>, usize) {
    let mut known = BTreeMap::new();
    loop {
        match next(count, &known) {
            Next::Found(place) | Next::Open(place) => return (place, known.len()),
            Next::Try(place, others) => {
                assert!(place < count && !known.contains_key(&place), "{place} again");
                known.insert(place, oracle(place));
                for other in others {
                    known.entry(other).or_insert_with(|| oracle(other));
                }
            }
        }
    }
}

fn needs(bytes: i64, capacity: i64) -> Point {
    Point::Ran { fits: bytes <= capacity, left: Some(capacity - bytes) }
}

#[test]
fn a_straight_line_is_found_in_five_trials() {
    for limit in 1..200_i64 {
        let (found, trials) = search(256, |place| needs(1000 + 50 * place as i64, 1000 + 50 * limit));
        assert_eq!(found, Some(limit as u64));
        assert!(trials <= 5, "{limit}: {trials}");
    }
}

#[test]
fn the_optimizers_peak_below_the_activations_costs_few_trials() {
    // What a Llama of 8 billion parameters needs on 80 GB: flat to batch 18, then 1.75 a batch; limits of either piece.
    for limit in [14_900, 15_600, 16_500, 19_000] {
        let need = |place: u64| needs((14_958).max(11_800 + 175 * place as i64), limit.max(14_958));
        let (found, trials) = search(64, need);
        assert_eq!(found, Some(((limit.max(14_958) - 11_800) / 175) as u64));
        assert!(trials <= 7, "{limit}: {trials}");
    }
}

#[test]
fn any_growing_need_is_found_and_soon() {
    for limit in [1_i64, 17, 255, 256, 4000, 65_535] {
        let steep = |place: u64| needs((place * place) as i64, limit * limit);
        let (found, trials) = search(65_536, steep);
        assert_eq!(found, Some(limit.min(65_535) as u64));
        assert!(trials <= 40, "{limit}: {trials}");
        let unknown = |place: u64| Point::Ran { fits: place as i64 <= limit, left: None };
        assert_eq!(search(65_536, unknown).0, Some(limit as u64));
    }
}

#[test]
fn ends_of_the_range_are_answers_too() {
    assert_eq!(search(10, |_| needs(1, 2)), (Some(9), 2));
    assert_eq!(search(10, |_| needs(3, 2)).0, None);
    assert_eq!(search(1, |_| needs(1, 2)), (Some(0), 1));
    assert_eq!(search(1, |_| Point::Refused), (None, 1));
    assert_eq!(search(2, |place| needs(place as i64, 0)).0, Some(0));
}

#[test]
fn refused_values_are_passed_below_and_a_limit_above() {
    let not_zero = |place: u64| if place == 0 { Point::Refused } else { needs(place as i64, 7) };
    assert_eq!(search(64, not_zero).0, Some(7));
    let not_large = |place: u64| if place > 5 { Point::Refused } else { needs(place as i64, 7) };
    assert_eq!(search(64, not_large).0, Some(5));
    let even = |limit: i64| {
        move |place: u64| if place.is_multiple_of(2) { Point::Refused } else { needs(place as i64, limit) }
    };
    for limit in 1..60 {
        assert_eq!(
            search(64, even(limit)).0,
            Some(limit as u64 - u64::from(limit % 2 == 0)),
            "even values alone, to {limit}"
        );
    }
    let eighths = |place: u64| if (place + 1).is_multiple_of(8) { needs(place as i64, 300) } else { Point::Refused };
    let (found, trials) = search(512, eighths);
    assert_eq!(found, Some(295), "multiples of eight alone");
    assert!(trials < 40, "{trials}");
    let (found, trials) = search(1 << 20, |_| Point::Refused);
    assert_eq!(found, None);
    assert!(trials <= 7, "{trials}");
}
