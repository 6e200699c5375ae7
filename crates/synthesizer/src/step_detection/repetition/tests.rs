use super::*;

fn explained(all: f64, late: f64) -> Explained {
    Explained { all, late }
}

#[test]
fn fewer_rounds_win_by_explaining_more_that_is_late_as_well_or_by_much() {
    let most = explained(0.75, 0.75);
    assert!(explained(0.8, 0.8).is_worth_fewer_rounds_than(most));
    assert!(explained(0.9, 0.5).is_worth_fewer_rounds_than(most), "much more is enough wherever it is");
    for little in [explained(0.8, 0.75), explained(0.75, 0.8), explained(0.752, 0.752), explained(0.75, 0.75)] {
        assert!(!little.is_worth_fewer_rounds_than(most), "{} {}", little.all, little.late);
    }
}

/// Requests that each die when the next one comes, but for those before the first event, which stay.
fn sequence(initial: u32, key: &[u32]) -> Sequence {
    let own = initial + 1..=initial + key.len() as u32;
    let with_initial = |of: Vec<u32>, other| std::iter::repeat_n(other, initial as usize).chain(of).collect();
    Sequence {
        initial,
        dies: with_initial(own.collect(), NEVER),
        key: with_initial(key.to_vec(), 99),
        size: vec![512; initial as usize + key.len()],
    }
}

/// The shares of all requests and of the late ones that an anchor explains.
fn shares(sequence: &Sequence, anchor: &[u32]) -> (f64, f64) {
    let class = &sequence.key[sequence.initial as usize..];
    let explained = Weigh::new(sequence, class).explained(anchor);
    (explained.all, explained.late)
}

#[test]
fn a_last_round_counts_up_to_a_quarter_more_than_the_longest() {
    let requests = |count: u32| (0..count).map(|i| i % 8).collect::<Vec<u32>>();
    assert_eq!(shares(&sequence(3, &requests(26)), &[0, 8, 16]), (1.0, 1.0));
    assert_eq!(shares(&sequence(3, &requests(32)), &[0, 8, 16]), (26.0 / 32.0, 10.0 / 16.0));
}

#[test]
fn what_is_in_three_rounds_of_five_is_explained_and_what_is_in_two_is_not() {
    // Classes 1 and 2 come in every round, 3 in three of the five that are whole, 4 in two of them.
    let key = [1, 2, 3, 1, 2, 4, 1, 2, 3, 1, 2, 4, 1, 2, 3, 1, 2];
    let (all, _) = shares(&sequence(0, &key), &[0, 3, 6, 9, 12, 15]);
    assert_eq!(all, 15.0 / 17.0);
}

#[test]
fn what_outlives_the_round_after_its_own_is_not_explained() {
    let key: Vec<u32> = (0..16).map(|i| i % 4).collect();
    let mut sequence = sequence(2, &key);
    // The first request of the second round is gone at the end of the third; then it is not.
    sequence.dies[2 + 4] = 2 + 12;
    assert_eq!(shares(&sequence, &[0, 4, 8, 12]).0, 1.0);
    sequence.dies[2 + 4] = 2 + 13;
    assert_eq!(shares(&sequence, &[0, 4, 8, 12]).0, 15.0 / 16.0);
    // What never ends is a fault where two more rounds came, and may still end where they did not.
    sequence.dies[2 + 4] = NEVER;
    assert_eq!(shares(&sequence, &[0, 4, 8, 12]).0, 15.0 / 16.0);
    sequence.dies[2 + 4] = 2 + 5;
    sequence.dies[2 + 13] = NEVER;
    assert_eq!(shares(&sequence, &[0, 4, 8, 12]).0, 1.0);
}

#[test]
fn of_as_many_rounds_the_anchor_that_comes_first_and_the_widest_are_tried() {
    let anchors = [vec![5, 10], vec![1, 4], vec![3, 20], vec![2, 6], vec![7, 8, 9]];
    assert_eq!(trials(&anchors), [&vec![1, 4], &vec![3, 20], &vec![7, 8, 9]]);
}

#[test]
fn the_shortest_round_is_the_least_distance_of_two_occurrences() {
    assert_eq!(shortest(&[10, 14, 17, 30]), 3);
    assert_eq!(shortest(&[10]), 0);
}

#[test]
fn rounds_that_come_once_do_not_repeat() {
    let repeated = |key: &[u32], anchor: &[u32]| Hashes::new(key).repeated(anchor);
    assert_eq!(repeated(&[1, 2, 3, 4, 5, 6, 7], &[0, 3, 6]), 0);
    assert_eq!(repeated(&[1, 2, 3, 1, 2, 3, 7], &[0, 3, 6]), 6);
    // The last round goes on after what is like a whole one.
    assert_eq!(repeated(&[1, 2, 3, 1, 2, 3, 7], &[0, 3]), 6);
    // Of a last one that is cut off, what is there counts if nine of ten are.
    let step: Vec<u32> = (0..10).collect();
    assert_eq!(repeated(&[&step[..], &step[..9]].concat(), &[0, 10]), 19);
    assert_eq!(repeated(&[&step[..], &step[..8]].concat(), &[0, 10]), 0);
    assert_eq!(repeated(&[&step[..], &step[..8], &[77]].concat(), &[0, 10]), 0);
}

#[test]
fn only_what_lives_briefly_weighs_on_a_boundary() {
    let mut sequence = sequence(1, &[1, 2, 3, 4]);
    sequence.size = vec![1, 10, 100, 1000, 10_000];
    sequence.dies = vec![3, 4, 4, NEVER, NEVER];
    // What was there before the first event never counts; what lives for as long as is allowed does.
    assert_eq!(crossing(&sequence, 3), [0, 10, 110, 0]);
    assert_eq!(crossing(&sequence, 2), [0, 0, 100, 0]);
    sequence.dies[4] = 5;
    assert_eq!(crossing(&sequence, 2), [0, 0, 100, 0], "nothing comes after the last request");
}

#[test]
fn boundaries_go_to_where_most_rounds_repeat_and_least_is_alive() {
    // A prologue of one request, then rounds of four; the second request of each lives to its fourth.
    let key: Vec<u32> = [9].into_iter().chain((0..16).map(|i| i % 4)).collect();
    let mut sequence = self::sequence(0, &key);
    for round in 0..4 {
        sequence.dies[2 + 4 * round] = 5 + 4 * round as u32;
    }
    for rounds in [[1, 5, 9, 13], [2, 6, 10, 14], [4, 8, 12, 16]] {
        assert_eq!(find(&sequence, Some(rounds.to_vec())), Some(vec![1, 5, 9, 13]), "from {rounds:?}");
    }
    // As far as a round is long.
    let three = self::sequence(0, &key[..13]);
    assert_eq!(find(&three, Some(vec![4, 8, 12])), Some(vec![1, 5, 9]));
}
