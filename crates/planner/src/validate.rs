//! Whether an instance is one.

use crate::{Error, Instance};

/// Whether every lifetime, alignment, fixed place, gap and conflict is what it should be. O(n log n).
pub(crate) fn validate(instance: &Instance) -> Result<(), Error> {
    if instance.buffers.len() > i32::MAX as usize {
        return Err(Error::TooMany(instance.buffers.len()));
    }
    if instance.period == Some(0) {
        return Err(Error::ZeroPeriod);
    }
    for (index, b) in instance.buffers.iter().enumerate() {
        if b.lower > b.upper {
            return Err(Error::EndsBeforeStart { index, lower: b.lower, upper: b.upper });
        }
        if let Some(period) = instance.period
            && b.lower >= period
        {
            return Err(Error::OutsideCycle { index, lower: b.lower, period });
        }
        if b.alignment == 0 {
            return Err(Error::ZeroAlignment { index });
        }
        if let Some(offset) = b.fixed {
            if offset % b.alignment != 0 {
                return Err(Error::FixedMisaligned { index, offset, alignment: b.alignment });
            }
            if offset.checked_add(b.size).is_none() {
                return Err(Error::TooLarge);
            }
        }
    }
    relations(instance)?;
    crate::check::fixed_overlap(instance).map_or(Ok(()), |(first, second)| Err(Error::FixedOverlap { first, second }))
}

/// Whether gaps and conflicts are what they should be.
fn relations(instance: &Instance) -> Result<(), Error> {
    let mut order: Vec<usize> = (0..instance.gaps.len()).collect();
    order.sort_unstable_by_key(|&g| (instance.gaps[g].buffer, instance.gaps[g].lower));
    let mut before = (usize::MAX, 0);
    for index in order {
        let gap = &instance.gaps[index];
        let Some(b) = instance.buffers.get(gap.buffer) else { return Err(Error::BadGap { index }) };
        let from = if before.0 == gap.buffer { before.1 } else { b.lower };
        let (first, last) = gap.window.unwrap_or((0, 0));
        if gap.lower < from || gap.lower > gap.upper || gap.upper > b.upper || first > last || last > b.size {
            return Err(Error::BadGap { index });
        }
        before = (gap.buffer, gap.upper);
    }
    let n = instance.buffers.len();
    match instance.conflicts.iter().position(|&(a, b)| a == b || a >= n || b >= n) {
        Some(index) => Err(Error::BadConflict { index }),
        None => Ok(()),
    }
}
