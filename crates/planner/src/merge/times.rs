//! Times as they are: sections hold what lives together, and forget when within a pause one ended and another began.

use crate::Instance;
use crate::problem::{Item, Part};

/// A line whose sections begin where any lifetime of the instance begins or ends; its solutions are those of the part.
pub(super) fn exact_times(part: &Part, instance: &Instance) -> Option<Part> {
    if part.ring || instance.period.is_some() {
        return None;
    }
    let all = || part.items.iter().chain(part.fixed.iter().map(|f| &f.0));
    let buffer = |item: &Item| &instance.buffers[item.id as usize];
    let mut times: Vec<u64> = all().map(buffer).flat_map(|b| [b.lower, b.upper]).collect();
    times.sort_unstable();
    times.dedup();
    let at = |time: u64| times.partition_point(|&t| t < time) as u32;
    let make = |item: &Item| Item { lower: at(buffer(item).lower), upper: at(buffer(item).upper), ..*item };
    let items = part.items.iter().map(make).collect();
    let fixed = part.fixed.iter().map(|(item, offset)| (make(item), *offset)).collect();
    Some(Part { items, fixed, sections: times.len().saturating_sub(1) as u32, ..*part })
}
