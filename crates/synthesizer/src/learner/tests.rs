use super::*;

/// A step that asks for so many units each time, and frees everything.
fn step(learner: &mut Learner, sizes: &[u64]) {
    learner.step_begin();
    for (&size, id) in sizes.iter().zip(1000..) {
        learner.alloc(id, 512 * size, 0);
    }
    for id in 1000..1000 + sizes.len() as u64 {
        learner.free(id);
    }
}

fn marked(limits: Limits) -> Learner {
    let mut learner = Learner::with(limits);
    learner.alloc(0, 512, 0);
    learner
}

#[test]
fn what_came_once_is_forgotten_first_and_of_that_what_came_longest_ago() {
    let mut learner = marked(Limits { kinds: 4, ..Limits::RUNNING });
    let kept = |learner: &Learner| -> Vec<u64> { learner.kinds.values().map(|kind| kind.keys[0].size / 512).collect() };
    // The first step and the prologue are what a plan of everything begins with: they stay longer than others that came once.
    for sizes in [&[2, 2, 2][..], &[3, 3], &[3, 3], &[4], &[5], &[6]] {
        step(&mut learner, sizes);
    }
    assert_eq!(kept(&learner), [1, 2, 3, 5], "four of them, and the last step is not complete");
    learner.close();
    assert_eq!(kept(&learner), [1, 2, 3, 6]);
    for size in 7..10 {
        step(&mut learner, &[3, 3]);
        step(&mut learner, &[size]);
    }
    learner.close();
    assert_eq!(kept(&learner), [1, 2, 3, 9]);
    assert_eq!(learner.kept(), (1 + 3 + 2 + 1, 4));
    assert_eq!(learner.by_hash.len(), 3, "all but the prologue can be found again");
}

#[test]
fn requests_above_the_limit_are_forgotten_and_counted_out() {
    let mut learner = marked(Limits { requests: 9, ..Limits::RUNNING });
    for sizes in [&[2][..], &[3; 3], &[4; 4], &[4; 4]] {
        step(&mut learner, sizes);
    }
    learner.close();
    assert_eq!(learner.kept(), (1 + 1 + 3 + 4, 4), "exactly as many as may be kept");
    step(&mut learner, &[5, 5, 5, 5]);
    learner.close();
    assert_eq!(learner.kept(), (9, 3), "the prologue goes as well before a kind that came twice");
}

#[test]
fn what_lives_through_more_than_sixteen_steps_has_no_end() {
    for (through, long) in [(16, false), (17, true), (18, true)] {
        let mut learner = marked(Limits::RUNNING);
        for _ in 0..through {
            step(&mut learner, &[2]);
        }
        learner.step_begin();
        learner.alloc(1, 1024, 0);
        learner.free(0);
        learner.close();
        let later = &learner.kinds[&0].later[&0];
        assert_eq!((later.long, later.ends.len()), (long, usize::from(!long)), "through {through}");
    }
}

#[test]
fn an_end_in_a_later_step_is_the_latest_that_was_seen_in_this_way() {
    let mut learner = marked(Limits::RUNNING);
    // Each step keeps something that the next one frees, before its second request or after it.
    for number in 0..6u64 {
        learner.step_begin();
        learner.alloc(10 + number, 1024, 0);
        if number % 2 == 1 {
            learner.free(9 + number);
        }
        learner.alloc(50, 2048, 0);
        learner.free(50);
        learner.free(9 + number);
    }
    learner.close();
    let later = &learner.kinds[&1].later[&0];
    assert_eq!(later.ends, [LaterEnd { passed: vec![], kind: 1, at: 2 }]);
}

#[test]
fn the_steps_that_warm_up_and_the_prologue_do_not_count_as_varying() {
    let mut learner = marked(Limits::RUNNING);
    for size in [2, 3, 4, 5, 5] {
        step(&mut learner, &[size; 2]);
    }
    learner.close();
    // Of the five, the first two may be like no other.
    assert_eq!(learner.exact(usize::MAX), (4, 6));
    assert_eq!(learner.exact(2), (4, 4));
    assert!(!learner.repeats(usize::MAX) && learner.repeats(2));
    // A kind that came twice ends the warming up.
    let mut learner = marked(Limits::RUNNING);
    for size in [2, 2, 3, 4] {
        step(&mut learner, &[size; 2]);
    }
    learner.close();
    assert_eq!(learner.exact(usize::MAX), (4, 8));
}

#[test]
fn a_kind_comes_until_it_has_been_gone_for_longer_than_it_had_been_coming() {
    let mut learner = marked(Limits::RUNNING);
    for size in [2, 2, 2, 3, 4] {
        step(&mut learner, &[size]);
    }
    learner.close();
    assert!(learner.comes(1), "two steps since, and two from the first to the last of it");
    step(&mut learner, &[5]);
    learner.close();
    assert!(!learner.comes(1));
    assert!(!learner.comes(6), "what came once does not come");
}

#[test]
fn each_refusal_of_a_draft_doubles_what_must_come_before_the_next() {
    let mut learner = marked(Limits::RUNNING);
    learner.note_draft(vec![1], 100);
    learner.forget_draft(false);
    assert_eq!(learner.drafted, (vec![], 100, 0));
    learner.note_draft(vec![1], 100);
    learner.forget_draft(true);
    assert_eq!(learner.drafted, (vec![], 200, 0));
    // What was waited for stays, unless the draft is much smaller now.
    learner.note_draft(vec![1], 100);
    assert_eq!(learner.drafted.1, 200);
    learner.forget_draft(true);
    learner.note_draft(vec![1], 5);
    assert_eq!(learner.drafted.1, 320);
    // A draft that was followed waits for nobody.
    learner.note_draft(vec![2], 7);
    assert_eq!(learner.drafted, (vec![2], 7, 0));
}

#[test]
fn a_step_that_is_cut_in_two_keeps_every_request_and_every_end() {
    let key = |size| RequestKey { size, stream: 0 };
    let old = LiveRequest { step: 1, kind: 7, entry: 3, run: 0, size: 512 };
    let open = OpenStep {
        keys: (1..=5).map(key).collect(),
        ids: (11..=15).collect(),
        own: vec![2, 5, 0, 4, 0],
        freed: vec![(old, 2), (LiveRequest { entry: 4, ..old }, 3)],
        lost: 0,
    };
    let made = LiveRequest { step: 8, kind: 9, entry: 0, run: 2, size: 0 };
    let (first, rest) = open.split(2, made);
    assert_eq!((first.keys, first.ids, first.own), (vec![key(1), key(2)], vec![11, 12], vec![2, 0]));
    assert_eq!((rest.keys, rest.ids), ((3..=5).map(key).collect(), vec![13, 14, 15]));
    assert_eq!(rest.own, [0, 2, 0]);
    let freed =
        |open: &[(LiveRequest, u32)]| open.iter().map(|(block, at)| (block.kind, block.entry, *at)).collect::<Vec<_>>();
    assert_eq!(freed(&first.freed), [(7, 3, 2)]);
    // The second request of the first step is freed in the rest.
    assert_eq!(freed(&rest.freed), [(7, 4, 1), (9, 1, 3)]);
}

#[test]
fn the_peak_is_of_rounded_bytes_and_falls_with_what_is_freed() {
    let mut learner = Learner::with(Limits::RUNNING);
    learner.alloc(1, 1, 0);
    learner.alloc(2, 513, 0);
    learner.free(1);
    learner.free(1);
    learner.alloc(3, 512, 0);
    assert_eq!((learner.peak, learner.live_bytes), (1536, 1536));
    // An identifier that is alive is freed before it names another request.
    learner.alloc(3, 1024, 0);
    assert_eq!((learner.peak, learner.live_bytes), (2048, 2048));
}

#[test]
fn a_step_that_is_too_long_is_counted_and_forgotten_with_what_it_freed() {
    let mut learner = marked(Limits { step: 4, ..Limits::RUNNING });
    step(&mut learner, &[2; 4]);
    step(&mut learner, &[3; 10]);
    learner.step_begin();
    (0..10).for_each(|id| learner.alloc(20 + id, 1024, 0));
    learner.free(0);
    step(&mut learner, &[2; 4]);
    learner.close();
    let ran: Vec<(u32, u32)> = learner.ran.iter().map(|ran| (ran.kind, ran.requests)).collect();
    assert_eq!(ran, [(0, 1), (1, 4), (FORGOTTEN, 10), (FORGOTTEN, 10), (1, 4)]);
    assert_eq!(learner.kinds[&0].later.len(), 0, "nobody knows when in the long step that was");
    assert_eq!(learner.kept(), (1 + 4, 2));
}
