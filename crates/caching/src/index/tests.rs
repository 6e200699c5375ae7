use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn the_index_is_an_ordered_set(
        steps in prop::collection::vec((any::<bool>(), 0u64..40, 0u64..3, 0u64..40), 0..1500)
    ) {
        let mut index = FreeIndex::default();
        let mut model = BTreeSet::new();
        for (insert, size, segment, address) in steps {
            let entry = FreeEntry { size, segment, address, block: 0 };
            if insert {
                if model.insert(entry) {
                    index.insert(entry);
                }
            } else {
                prop_assert_eq!(index.remove(entry), model.remove(&entry));
            }
            let first = FreeEntry { size, segment: 0, address: 0, block: 0 };
            prop_assert_eq!(index.seek(size).map(|c| index.get(c)), model.range(first..).next().copied());
        }
        prop_assert!(index.chunks.iter().all(|c| !c.is_empty() && c.len() <= CHUNK));
        prop_assert!(index.iter().eq(model.iter().copied()));
        prop_assert_eq!(index.last(), model.last().copied());
        let mut walked = Vec::new();
        let mut at = index.seek(0);
        while let Some(cursor) = at {
            walked.push(index.get(cursor));
            at = index.next(cursor);
        }
        prop_assert!(walked.into_iter().eq(model));
    }
}
