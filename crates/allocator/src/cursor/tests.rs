use proptest::prelude::*;
use stalloc_plan::{DynamicGroup, Entry, Plan, Section, SectionKind, Slot};

use super::*;

/// Sections of planned and dynamic entries, of so few sizes that one is often taken for another.
fn script() -> impl Strategy<Value = Script> {
    let slot = (1..6u64).prop_map(|size| Slot { size: size * 512, offset: 0, stream: 0, lower: 0, upper: 1 });
    let group = (1..6u64, 0..3u64, any::<bool>()).prop_map(|(least, more, always)| DynamicGroup {
        section: 0,
        stream: 0,
        lifetime: 0..1,
        sizes: [least, least, least + more, least + more].map(|size| size * 512),
        peak: 0,
        always,
        reusable: Vec::new(),
        home: 0..0,
    });
    let entry = prop_oneof![(0..6u32).prop_map(Entry::Slot), (0..4u32).prop_map(Entry::Dynamic)];
    let section = prop::collection::vec(entry, 0..12).prop_map(|entries| Section {
        kind: SectionKind::Repeating,
        name: String::new(),
        runs: 1,
        entries,
        releases: Vec::new(),
        followers: vec![0],
    });
    (prop::collection::vec(slot, 6), prop::collection::vec(group, 4), prop::collection::vec(section, 1..4)).prop_map(
        |(slots, dynamic, sections)| {
            let plan = Plan { alignment: 512, arena: 1 << 20, slots, dynamic, sections, ..Plan::default() };
            Script::new(&plan).expect("it can be followed")
        },
    )
}

/// What there is to say of where a cursor is.
fn state(cursor: &Cursor) -> String {
    format!("{:?} {:?} {:?} {}", cursor.candidates, cursor.last, cursor.run_over, cursor.misfits)
}

proptest! {
    #[test]
    fn a_dynamic_request_that_is_known_at_once_is_what_it_is_at_length(
        script in script(),
        sizes in prop::collection::vec(1..8u32, 0..100),
    ) {
        let mut cursor = Cursor::new(&script);
        for size in sizes {
            let key = Key::new(size, 0);
            let mut at_length = cursor.clone();
            at_length.remember(key);
            if let guess @ Guess::Dynamic(_) = cursor.advance(&script, key) {
                prop_assert_eq!(at_length.advance_slowly(&script, key), guess);
                prop_assert_eq!(state(&at_length), state(&cursor));
            }
        }
    }
}
