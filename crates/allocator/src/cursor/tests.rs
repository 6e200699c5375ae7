use proptest::prelude::*;
use stalloc_plan::{Entry, Plan, Section, SectionKind, Slot};

use super::*;

/// Sections of so few sizes that one entry is often taken for another.
fn script() -> impl Strategy<Value = Script> {
    let slot = (1..6u64).prop_map(|size| Slot { size: size * 512, offset: 0, stream: 0, lower: 0, upper: 1 });
    let open = (1..6u64).prop_map(|size| Entry::WithoutOffset { size: size * 512, stream: 0 });
    let entry = prop_oneof![4 => (0..6u32).prop_map(Entry::Slot), 1 => open];
    let section = prop::collection::vec(entry, 0..12).prop_map(|entries| Section {
        kind: SectionKind::Repeating,
        name: String::new(),
        runs: 1,
        entries,
        releases: Vec::new(),
        followers: vec![0],
    });
    (prop::collection::vec(slot, 6), prop::collection::vec(section, 1..4)).prop_map(|(slots, sections)| {
        let plan = Plan { alignment: 512, arena: 1 << 20, slots, sections, ..Plan::default() };
        Script::new(&plan).expect("it can be followed")
    })
}

/// What there is to say of where a cursor is.
fn state(cursor: &Cursor) -> String {
    format!("{:?} {:?} {}", cursor.candidates, cursor.requests, cursor.misfits)
}

proptest! {
    #[test]
    fn a_request_that_is_known_at_once_is_what_it_is_at_length(
        script in script(),
        acts in prop::collection::vec((1..8u32, 0..20u32), 0..100),
    ) {
        let mut cursor = Cursor::new(&script);
        for (size, mark) in acts {
            if mark == 0 {
                cursor.step_begin(&script);
            }
            let key = Key::new(size, 0);
            let mut at_length = cursor.clone();
            at_length.remember(key);
            let guess = cursor.advance(&script, key);
            if guess != Guess::NotInPlan {
                prop_assert_eq!(at_length.advance_slowly(&script, key), guess);
                prop_assert_eq!(state(&at_length), state(&cursor));
            }
        }
    }

    #[test]
    fn a_program_that_repeats_a_section_that_begins_like_no_other_is_followed(
        script in script(),
        which in 0..4usize,
    ) {
        let begins = |section: &crate::script::ScriptSection| section.entries.first().map(|entry| entry.key);
        let mut beginnings: Vec<_> = script.sections.iter().map(begins).collect();
        beginnings.sort_unstable();
        beginnings.dedup();
        prop_assume!(beginnings.len() == script.sections.len());
        let section = which % script.sections.len();
        let keys: Vec<Key> = script.entries(section as u32).iter().map(|entry| entry.key).collect();
        let mut cursor = Cursor::new(&script);
        for time in 0..6 {
            cursor.step_begin(&script);
            for &key in &keys {
                let guess = cursor.advance(&script, key);
                prop_assert!(time < 2 || matches!(guess, Guess::Planned(_) | Guess::WithoutOffset), "{time}: {guess:?}");
            }
        }
    }
}
