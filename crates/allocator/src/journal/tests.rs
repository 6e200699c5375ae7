use super::*;

#[test]
fn what_nobody_reads_is_left_out_and_told() {
    let mut journal = Journal::default();
    journal.push(JournalEvent::StepBegin);
    let mut events = Vec::new();
    assert!(journal.take(&mut events) && events.is_empty(), "it was not turned on");
    journal.turn_on();
    (0..=MOST).for_each(|_| journal.push(JournalEvent::StepBegin));
    assert!(!journal.take(&mut events));
    assert_eq!(events.len(), MOST);
    journal.push(JournalEvent::Free { start: 7 });
    assert!(journal.take(&mut events));
    assert_eq!(events, [JournalEvent::Free { start: 7 }]);
}
