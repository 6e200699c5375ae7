use super::*;

#[test]
fn a_program_is_another_one_if_the_plan_knows_nothing_of_most_of_its_requests() {
    let told = |arena, requests, not_in_plan, position_unknown| {
        let unplanned = Unplanned { not_in_plan, position_unknown, ..Unplanned::default() };
        Statistics { arena, requests, unplanned, ..Statistics::default() }.is_of_another_program()
    };
    assert!(told(512, 100, 30, 30));
    assert!(!told(512, 100, 20, 30));
    assert!(!told(0, 100, 100, 0), "without a plan there is none to leave");
    assert!(!told(512, 0, 0, 0));
}
