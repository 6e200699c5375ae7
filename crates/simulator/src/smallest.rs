//! The smallest device that a trace gets through on.

use stalloc_trace::Trace;

use crate::{Error, Kind, Options, replay};

/// Pages of the device: no smaller difference is looked for.
const PAGE: u64 = 2 << 20;

/// Nor one smaller than this part of the peak of live bytes.
const PRECISION: u64 = 4096;

/// The fewest bytes of a device on which an allocator gets through a trace, to a page or 1/4096 of the peak of live bytes;
/// `None` if it does not with sixteen times that. Bisection: about ten replays.
pub fn smallest_capacity(
    trace: &Trace,
    kind: Kind,
    options: &Options<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Option<u64>, Error> {
    let mut fits = |capacity: u64| {
        let options = Options { capacity: Some(capacity), ..options.clone() };
        Ok::<_, Error>(replay(trace, kind, &options, progress)?.oom.is_none())
    };
    let peak = trace.peak_allocated().next_multiple_of(PAGE);
    let unit = (peak / PRECISION).next_multiple_of(PAGE).max(PAGE);
    if fits(peak)? {
        return Ok(Some(peak));
    }
    // The device is too small with `peak + low` units, large enough with `peak + high`.
    let (mut low, mut high) = (0, 1);
    while !fits(peak + high * unit)? {
        if high * unit > 16 * peak {
            return Ok(None);
        }
        (low, high) = (high, high * 4);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(peak + middle * unit)? {
            high = middle;
        } else {
            low = middle;
        }
    }
    Ok(Some(peak + high * unit))
}
