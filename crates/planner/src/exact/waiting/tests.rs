use super::*;
use crate::part::Item;
use proptest::prelude::*;

proptest! {
    #[test]
    fn the_list_holds_what_was_not_taken_in_order(
        mut lowers in prop::collection::vec(0u32..10, 1..20),
        changes in prop::collection::vec(prop::option::of(any::<prop::sample::Index>()), 0..60),
    ) {
        lowers.sort_unstable();
        let item = |(id, &lower): (usize, &u32)| Item { lower, upper: lower + 1, size: 1, align: 1, id: id as u32 };
        let items: Vec<Item> = lowers.iter().enumerate().map(item).collect();
        let part = Part { items, sections: 10, ..Part::default() };
        let mut waiting = Waiting::new(&part);
        let mut taken = Vec::new();
        for step in changes {
            match step {
                Some(index) => {
                    let i = index.index(lowers.len()) as u32;
                    if !waiting.is_gone(i) {
                        waiting.take(i);
                        taken.push(i);
                    }
                }
                None => taken.pop().into_iter().for_each(|i| waiting.give(i)),
            }
            for section in 0..=10 {
                let expected: Vec<u32> = (0..lowers.len() as u32)
                    .filter(|i| lowers[*i as usize] >= section && !taken.contains(i))
                    .collect();
                let mut found = Vec::new();
                let mut i = waiting.from(section);
                while (i as usize) < lowers.len() {
                    found.push(i);
                    i = waiting.after(i);
                }
                prop_assert_eq!(found, expected);
            }
        }
    }
}
