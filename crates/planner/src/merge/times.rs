//! Times as they are: sections hold what lives together, and forget when within a pause one ended and another began.

use crate::Instance;
use crate::part::{Item, Part};

/// The part with sections that begin where any lifetime of the instance begins or ends; its solutions are those of the part.
pub(super) fn exact_times(part: &Part, instance: &Instance) -> Part {
    let all = || part.items.iter().chain(part.fixed.iter().map(|f| &f.0));
    let buffer = |item: &Item| &instance.buffers[item.id as usize];
    let period = instance.period.unwrap_or(u64::MAX);
    let after = |from: u64, to: u64| if to >= from { to - from } else { period - from + to };
    // A ring where at some time nothing lives is a line from the first begin after that time on.
    let is_cut = instance.period.is_some() && !part.ring;
    let last = all().find(|i| is_cut && i.upper == part.sections).map_or(0, |i| buffer(i).upper % period);
    let origin = all().filter(|i| is_cut && i.lower == 0).map(|i| buffer(i).lower).min_by_key(|&t| after(last, t));
    let origin = origin.unwrap_or(0);
    let begin = |item: &Item| after(origin, buffer(item).lower);
    let end = |item: &Item| begin(item) + (buffer(item).upper - buffer(item).lower);
    let wrap = |time: u64| if part.ring { time % period } else { time };
    let mut times: Vec<u64> = all().flat_map(|item| [begin(item), wrap(end(item))]).collect();
    times.sort_unstable();
    times.dedup();
    let sections = times.len() as u32 - u32::from(!part.ring);
    let at = |time: u64| times.partition_point(|&t| t < wrap(time)) as u32;
    let make = |item: &Item| {
        let wraps = part.ring && end(item) >= period;
        Item { lower: at(begin(item)), upper: at(end(item)) + if wraps { sections } else { 0 }, ..*item }
    };
    let items = part.items.iter().map(make).collect();
    let fixed = part.fixed.iter().map(|(item, offset)| (make(item), *offset)).collect();
    Part { items, fixed, sections, ..*part }
}
