use super::*;
use crate::limits::Limits;

/// One that looks for steps after so many requests.
fn unmarked(look: usize) -> Learner {
    let mut learner = Learner::with(Limits::RUNNING);
    learner.unmarked = Unmarked::new(look);
    learner
}

/// Asks for so many units each time; each request dies when the next one comes.
fn ask(learner: &mut Learner, sizes: &[u64]) {
    for &size in sizes {
        learner.alloc(1, 512 * size, 0);
    }
}

/// A step that is longer than the beginning by which it is known again.
fn known() -> Vec<u64> {
    (1..=beginning() as u64 + 6).collect()
}

/// One that knows the step, and has just heard its last request.
fn following() -> Learner {
    let step = known();
    let mut learner = unmarked(4 * step.len());
    ask(&mut learner, &step.repeat(8));
    learner
}

#[test]
fn a_step_of_a_known_kind_ends_with_its_last_request() {
    let (mut learner, step) = (following(), known());
    let (last, others) = step.split_last().unwrap();
    for _ in 0..3 {
        let steps = learner.steps();
        assert!(learner.boundary, "the last request of a step has come");
        ask(&mut learner, others);
        assert!(!learner.boundary && learner.steps() == steps + 1);
        ask(&mut learner, &[*last]);
        assert_eq!(learner.open.keys.len(), step.len());
    }
    let noted: Vec<usize> = learner.unmarked.beginnings.values().flatten().map(|&(length, _)| length).collect();
    assert_eq!(noted, [beginning()], "once, however often it comes");
}

#[test]
fn after_something_unknown_a_step_begins_where_a_known_one_does() {
    let (mut learner, step) = (following(), known());
    let steps = learner.steps();
    // It ends as the beginning of a known kind does, and is none.
    let unknown = [&[7; 80][..], &[beginning() as u64]].concat();
    ask(&mut learner, &unknown);
    assert_eq!((learner.steps(), learner.open.keys.len()), (steps + 1, unknown.len()));
    ask(&mut learner, &step[..beginning()]);
    assert_eq!(learner.steps(), steps + 2, "what is unknown is a step of its own");
    assert_eq!(learner.open.keys.iter().map(|key| key.size / 512).collect::<Vec<_>>(), step[..beginning()]);
    ask(&mut learner, &step[beginning()..]);
    assert!(learner.boundary, "and it is followed from there");
}

#[test]
fn what_lives_where_a_step_is_cut_belongs_to_the_step_after_the_cut() {
    let mut learner = unmarked(1 << 20);
    for id in 0..6 {
        learner.alloc(id, 512 * (1 + id), 0);
    }
    learner.free(3);
    learner.alloc(3, 512, 0);
    learner.cut(2);
    let at = |id: u64| (learner.live[&id].step, learner.live[&id].entry);
    assert_eq!([0, 1, 2, 4, 5].map(at), [(0, 0), (0, 1), (1, 0), (1, 2), (1, 3)]);
    // The identifier came twice: what lives is the last request by it.
    assert_eq!(at(3), (1, 4));
    assert_eq!((learner.steps(), learner.open.keys.len(), &learner.open.ids[..]), (1, 5, &[2, 3, 4, 5, 3][..]));
}

#[test]
fn a_job_that_does_not_repeat_is_looked_through_at_lengths_that_double() {
    let mut learner = unmarked(16);
    let sizes: Vec<u64> = (1..100).collect();
    ask(&mut learner, &sizes[..15]);
    assert_eq!(learner.unmarked.look, 16);
    ask(&mut learner, &sizes[15..16]);
    assert_eq!(learner.unmarked.look, 32);
    ask(&mut learner, &sizes[16..40]);
    assert_eq!((learner.unmarked.look, learner.steps()), (64, 0));
}
