use super::*;

#[test]
fn a_plan_loses_what_is_remapped_under_it_beyond_what_was_in_each_step_without() {
    let mut worth = Worth::default();
    worth.step_begin(10, false);
    worth.step_begin(25, false);
    assert_eq!(worth.each(), 10, "the less of two steps");
    worth.adopt();
    worth.step_begin(1000, false);
    assert_eq!(worth.loss(), 0, "what the adoption itself takes does not count");
    worth.step_begin(1040, true);
    assert_eq!(worth.loss(), 30);
    worth.step_begin(1045, true);
    assert_eq!(worth.loss(), 25);
    worth.adopt();
    assert_eq!(worth.loss(), 0);
    for _ in 0..3 {
        worth.step_begin(1045, true);
    }
    assert_eq!(worth.loss(), 0, "a plan that saves loses nothing");
}

#[test]
fn a_plan_pays_if_it_saves_soon_what_it_costs_once() {
    let mut worth = Worth::default();
    assert!(worth.pays(0, 0) && !worth.pays(1, 0));
    assert!(!worth.pays(0, 1), "after one that saved nothing");
    worth.step_begin(100, false);
    worth.step_begin(200, false);
    let saved = 100 * saved_within();
    assert!(worth.pays(saved, 0) && !worth.pays(saved + 1, 0));
    assert!(worth.pays(saved / 2, 1) && !worth.pays(saved / 2 + 1, 1));
    assert!(!worth.pays(0, u64::MAX));
}
