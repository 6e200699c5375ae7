//! `allocator_settings`: how the recorded allocator was set up.

use std::collections::BTreeMap;

use crate::pickle::{Pickled, Value};
use crate::state::AllocatorSettings;

/// The settings, `None` where the snapshot does not say.
pub(super) fn read(arena: &Pickled, dict: Value) -> Option<AllocatorSettings> {
    if !dict.is_dict() {
        return None;
    }
    let threshold = arena.as_float(arena.get(dict, "garbage_collection_threshold")).unwrap_or(0.0);
    Some(AllocatorSettings {
        expandable_segments: arena.as_bool(arena.get(dict, "expandable_segments")).unwrap_or(false),
        // -1: no limit.
        max_split_size: arena.as_int(arena.get(dict, "max_split_size")).and_then(|size| u64::try_from(size).ok()),
        garbage_collection_threshold: if (0.0..=1.0).contains(&threshold) { threshold } else { 0.0 },
        roundup_power2_divisions: divisions(arena, arena.get(dict, "roundup_power2_divisions")),
    })
}

/// A dict from sizes in MiB (as text) to divisions; all zero when off.
fn divisions(arena: &Pickled, dict: Value) -> Vec<(u64, u64)> {
    let pairs = arena.pairs(dict).into_iter().flatten();
    let by_size: BTreeMap<u64, u64> = pairs
        .filter_map(|(size, divisions)| {
            let size = arena.as_str(size)?.parse().ok()?;
            Some((size, u64::try_from(arena.as_int(divisions)?).ok()?))
        })
        .collect();
    if by_size.values().all(|&divisions| divisions == 0) { Vec::new() } else { by_size.into_iter().collect() }
}

/// The settings' own text, for people.
pub(super) fn metadata(arena: &Pickled, dict: Value) -> BTreeMap<String, String> {
    let conf = arena.as_str(arena.get(dict, "PYTORCH_CUDA_ALLOC_CONF"));
    let conf = conf.filter(|conf| !conf.is_empty());
    conf.map(|conf| ("PYTORCH_CUDA_ALLOC_CONF".to_owned(), conf.into_owned())).into_iter().collect()
}
