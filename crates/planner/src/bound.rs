//! The lower bound: the largest live load over time, sharpened by what alignments and fixed places force.

use crate::part::{Part, Problem};
use crate::{Error, Instance};

/// Live load of each section, in units, without the part's base; saturates.
pub(crate) fn loads(part: &Part) -> Vec<u64> {
    let m = part.sections as usize;
    let mut change = vec![0i128; m + 1];
    for item in part.items.iter().chain(part.fixed.iter().map(|f| &f.0)) {
        let size = i128::from(item.size);
        change[item.lower as usize] += size;
        if item.upper <= part.sections {
            change[item.upper as usize] -= size;
        } else {
            change[0] += size;
            change[(item.upper - part.sections) as usize] -= size;
        }
    }
    let mut load = 0;
    let at = |c: &i128| {
        load += c;
        u64::try_from(load).unwrap_or(u64::MAX)
    };
    change[..m].iter().map(at).collect()
}

/// Fills in the bounds of the parts and of the whole. O(n).
pub(crate) fn fill(instance: &Instance, problem: &mut Problem) -> Result<(), Error> {
    let unit = problem.unit;
    let buffer = |id: u32| &instance.buffers[id as usize];
    // Sizes are rounded up to the unit because something aligned may come above. On top nothing does: what is
    // rounded there is not needed, and it may be any of the buffers that live then.
    let rounding = |id: u32| (unit - buffer(id).size % unit) % unit;
    let at_bottom = problem.decided.iter().filter(|d| buffer(d.0).counts());
    let bottom_rounding = at_bottom.clone().map(|d| rounding(d.0)).max().unwrap_or(0);
    let sharp = |units: u64, rounding: u64| {
        let top = u128::from(units) * u128::from(unit);
        u64::try_from(top.saturating_sub(u128::from(rounding))).map_err(|_| Error::TooLarge)
    };
    let mut exact: u64 = 0;
    for &(id, offset) in at_bottom {
        exact = exact.max(sharp(offset.saturating_add(buffer(id).size.div_ceil(unit)), bottom_rounding)?);
    }
    for part in &mut problem.parts {
        let loads = loads(part);
        let (heaviest, load) = loads.iter().copied().enumerate().max_by_key(|&(_, l)| l).unwrap_or((0, 0));
        let fixed = part.fixed.iter().map(|(i, offset)| offset.saturating_add(i.size)).max().unwrap_or(0);
        let through = part.base.saturating_add(load);
        part.bound = through.max(fixed);
        let there = part.items.iter().chain(part.fixed.iter().map(|f| &f.0));
        let there = there.filter(|i| covers(i.lower, i.upper, heaviest as u32, part.sections));
        exact = exact.max(sharp(through, there.map(|i| rounding(i.id)).fold(bottom_rounding, u64::max))?);
    }
    for b in instance.buffers.iter().filter(|b| b.counts()) {
        exact = exact.max(b.fixed.unwrap_or(0) + b.size);
    }
    problem.lower_bound = exact;
    Ok(())
}

/// Whether a lifetime covers a section.
fn covers(lower: u32, upper: u32, section: u32, sections: u32) -> bool {
    (lower <= section && section < upper) || section + sections < upper
}
