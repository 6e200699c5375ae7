//! Two inputs: what differs, most bytes first.

use std::collections::BTreeMap;

use stalloc_trace::Request;

use crate::device::Analysis;
use crate::figures::{AllocatorFigures, DeviceOfInput, FigureChange, InputComparison, label};
use crate::sites::{Sites, size_class};
use crate::words::bytes;

/// How many differences of a kind are listed.
const LISTED: usize = 20;

/// Compares the devices of the first input with those of each other input. Devices of the same number go together; where
/// there is none, or each input has but one, the first of each do.
pub fn all(inputs: &[Vec<Analysis<'_>>]) -> Vec<InputComparison> {
    let Some((first, others)) = inputs.split_first() else { return Vec::new() };
    let mut comparisons = Vec::new();
    for (index, other) in others.iter().enumerate() {
        let number =
            |devices: &[Analysis<'_>], wanted: u32| devices.iter().position(|one| one.figures.device == wanted);
        let mut pairs: Vec<(usize, usize)> =
            (0..first.len()).filter_map(|a| Some((a, number(other, first[a].figures.device)?))).collect();
        if pairs.is_empty() && !first.is_empty() && !other.is_empty() {
            pairs.push((0, 0));
        }
        for (a, b) in pairs {
            let after = DeviceOfInput { input: index + 1, device: b };
            comparisons.push(compare((&first[a], DeviceOfInput { input: 0, device: a }), (&other[b], after)));
        }
    }
    comparisons
}

/// Compares two devices.
fn compare(before: (&Analysis<'_>, DeviceOfInput), after: (&Analysis<'_>, DeviceOfInput)) -> InputComparison {
    let (a, b) = (&before.0.figures, &after.0.figures);
    let mut figures =
        vec![FigureChange { what: "peak allocated".into(), before: a.peak_allocated, after: b.peak_allocated }];
    for (kind, value) in [
        ("reserved", (|f: &AllocatorFigures| f.peak_reserved) as fn(&AllocatorFigures) -> u64),
        ("wasted", |f: &AllocatorFigures| f.wasted),
    ] {
        for one in &a.allocators {
            if let Some(other) = b.allocators.iter().find(|other| other.allocator == one.allocator) {
                figures.push(FigureChange {
                    what: format!("{kind}: {}", label(one.allocator)),
                    before: value(one),
                    after: value(other),
                });
            }
        }
    }
    let categories = merge(by_category(before.0), by_category(after.0));
    let (sites, sizes) = (merge(by_site(before.0), by_site(after.0)), merge(by_size(before.0), by_size(after.0)));
    InputComparison {
        before: before.1,
        after: after.1,
        sentence: sentence(&figures[0], &sites, &sizes),
        figures,
        categories,
        sites,
        sizes,
    }
}

fn sentence(peak: &FigureChange, sites: &[FigureChange], sizes: &[FigureChange]) -> String {
    let change = match peak.after.cmp(&peak.before) {
        std::cmp::Ordering::Equal => "The peak is the same in both".to_owned(),
        order => format!(
            "The second one needs {} {} at its peak",
            bytes(peak.size()),
            if order.is_gt() { "more" } else { "less" }
        ),
    };
    match sites.first().or(sizes.first()) {
        Some(most) => {
            let sign = if most.after >= most.before { '+' } else { '\u{2212}' };
            format!("{change}; the largest difference is {} ({sign}{}).", most.what, bytes(most.size()))
        }
        None => format!("{change}."),
    }
}

type Sums = BTreeMap<String, u64>;

fn merge(before: Sums, after: Sums) -> Vec<FigureChange> {
    let mut all: BTreeMap<String, (u64, u64)> = before.into_iter().map(|(what, value)| (what, (value, 0))).collect();
    for (what, value) in after {
        all.entry(what).or_default().1 = value;
    }
    let mut list: Vec<FigureChange> = all
        .into_iter()
        .filter(|(_, (before, after))| before != after)
        .map(|(what, (before, after))| FigureChange { what, before, after })
        .collect();
    list.sort_by_key(|one| std::cmp::Reverse(one.size()));
    list.truncate(LISTED);
    list
}

fn by_category(analysis: &Analysis<'_>) -> Sums {
    analysis.figures.categories.iter().map(|one| (one.category.to_owned(), one.bytes_at_peak)).collect()
}

fn by_site(analysis: &Analysis<'_>) -> Sums {
    if !analysis.figures.has_stacks {
        return Sums::new();
    }
    let mut sites = Sites::new(analysis.trace);
    by(analysis, |request| sites.of(request).to_string())
}

fn by_size(analysis: &Analysis<'_>) -> Sums {
    by(analysis, |request| size_class(request.rounded()))
}

fn by(analysis: &Analysis<'_>, mut what: impl FnMut(&Request) -> String) -> Sums {
    let mut sums = Sums::new();
    for request in analysis.live_at_peak() {
        *sums.entry(what(request)).or_default() += request.rounded();
    }
    sums
}
