//! How PyTorch's allocator is set up, from `_snapshot()["allocator_settings"]`.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use stalloc_trace::AllocatorSettings;

/// The settings; what is missing or of another kind is off.
pub fn read(settings: &Bound<'_, PyDict>) -> AllocatorSettings {
    let divisions: BTreeMap<String, u64> = item(settings, "roundup_power2_divisions").unwrap_or_default();
    let divisions: BTreeMap<u64, u64> =
        divisions.into_iter().filter_map(|(size, divisions)| Some((size.parse().ok()?, divisions))).collect();
    let is_off = divisions.values().all(|&divisions| divisions == 0);
    AllocatorSettings {
        expandable_segments: item(settings, "expandable_segments").unwrap_or(false),
        // -1: no limit.
        max_split_size: item::<i64>(settings, "max_split_size").and_then(|size| u64::try_from(size).ok()),
        garbage_collection_threshold: item(settings, "garbage_collection_threshold").unwrap_or(0.0),
        roundup_power2_divisions: if is_off { Vec::new() } else { divisions.into_iter().collect() },
    }
}

fn item<T: for<'a, 'py> FromPyObject<'a, 'py>>(settings: &Bound<'_, PyDict>, name: &str) -> Option<T> {
    settings.get_item(name).ok()??.extract().ok()
}
