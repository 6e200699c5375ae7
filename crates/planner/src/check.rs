//! An independent check of a solution: nothing overlaps, everything is where it has to be, and what is claimed of the
//! bound holds. It shares no code with the search.

use std::collections::BTreeMap;

use crate::{Instance, Solution};

/// What is wrong with a solution. Buffers are named by their index in the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// Not one offset for each buffer.
    #[error("{offsets} offsets for {buffers} buffers")]
    Count {
        /// Buffers of the instance.
        buffers: usize,
        /// Offsets of the solution.
        offsets: usize,
    },
    /// Not a multiple of its alignment.
    #[error("buffer {0} is not aligned")]
    Misaligned(usize),
    /// Not where it is fixed.
    #[error("buffer {0} is not where it is fixed")]
    Moved(usize),
    /// It ends beyond 64 bits.
    #[error("buffer {0} ends beyond the addresses of 64 bits")]
    Beyond(usize),
    /// Two buffers share an address while both live.
    #[error("buffers {0} and {1} overlap")]
    Overlap(usize, usize),
    /// The peak is not the highest address used.
    #[error("the peak is {real}, not {claimed}")]
    Peak {
        /// As claimed.
        claimed: u64,
        /// As it is.
        real: u64,
    },
    /// Said to be optimal, but the bound does not say so.
    #[error("said to be optimal, but the peak {peak} is above the lower bound {bound}")]
    Unproven {
        /// As claimed.
        bound: u64,
        /// Of the solution.
        peak: u64,
    },
    /// The peak is below the claimed lower bound.
    #[error("the lower bound {claimed} is above the peak {peak}")]
    Bound {
        /// As claimed.
        claimed: u64,
        /// Of the solution.
        peak: u64,
    },
}

/// Checks a solution. O(n log n).
pub fn check(instance: &Instance, solution: &Solution) -> Result<(), Flaw> {
    let buffers = &instance.buffers;
    if buffers.len() != solution.offsets.len() {
        return Err(Flaw::Count { buffers: buffers.len(), offsets: solution.offsets.len() });
    }
    let mut peak = 0;
    for (i, (b, &offset)) in buffers.iter().zip(&solution.offsets).enumerate() {
        if b.alignment == 0 || !offset.is_multiple_of(b.alignment) {
            return Err(Flaw::Misaligned(i));
        }
        if b.fixed.is_some_and(|f| f != offset) {
            return Err(Flaw::Moved(i));
        }
        let top = offset.checked_add(b.size).ok_or(Flaw::Beyond(i))?;
        if b.counts() {
            peak = peak.max(top);
        }
    }
    let placed: Vec<Option<u64>> = solution.offsets.iter().map(|&o| Some(o)).collect();
    if let Some((a, b)) = overlap(instance, &placed) {
        return Err(Flaw::Overlap(a, b));
    }
    if solution.peak != peak {
        return Err(Flaw::Peak { claimed: solution.peak, real: peak });
    }
    if solution.lower_bound > peak {
        return Err(Flaw::Bound { claimed: solution.lower_bound, peak });
    }
    if solution.optimal && solution.lower_bound < peak {
        return Err(Flaw::Unproven { bound: solution.lower_bound, peak });
    }
    Ok(())
}

/// Two buffers fixed at places that overlap while both live.
pub(crate) fn fixed_overlap(instance: &Instance) -> Option<(usize, usize)> {
    if instance.buffers.iter().all(|b| b.fixed.is_none()) {
        return None;
    }
    let placed: Vec<Option<u64>> = instance.buffers.iter().map(|b| b.fixed).collect();
    overlap(instance, &placed)
}

/// Two buffers among those placed that overlap. Sweeps over time with the live ones in order of address: the one that
/// starts may only meet its neighbours. In a cycle, what wraps around is there from the beginning too.
fn overlap(instance: &Instance, placed: &[Option<u64>]) -> Option<(usize, usize)> {
    // (time, starts?, buffer): at equal times ends come before starts.
    let mut events = Vec::new();
    for piece in instance.pieces() {
        let Some(offset) = placed[piece.buffer] else { continue };
        let (first, last) = (offset.saturating_add(piece.first), offset.saturating_add(piece.last));
        let i = piece.buffer;
        let mut stays = |from, to| events.extend([(from, true, i, first, last), (to, false, i, first, last)]);
        match instance.period {
            Some(p) if piece.upper - piece.lower >= p => stays(0, p),
            Some(p) if piece.upper > p => {
                stays(0, piece.upper - p);
                stays(piece.lower, p);
            }
            _ => stays(piece.lower, piece.upper),
        }
    }
    events.sort_unstable();
    let apart = |&&(a, b): &&(usize, usize)| {
        let range = |i: usize| placed[i].map(|from| (from, from.saturating_add(instance.buffers[i].size)));
        let counts = instance.buffers[a].counts() && instance.buffers[b].counts();
        counts && range(a).zip(range(b)).is_some_and(|(a, b)| a.0 < b.1 && b.0 < a.1)
    };
    if let Some(&(a, b)) = instance.conflicts.iter().find(apart) {
        return Some((a.min(b), a.max(b)));
    }
    let mut live: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
    for (_, starts, i, from, to) in events {
        if !starts {
            live.remove(&from);
            continue;
        }
        let below = live.range(..to).next_back();
        if let Some((_, &(end, other))) = below
            && end > from
        {
            return Some((other.min(i), other.max(i)));
        }
        live.insert(from, (to, i));
    }
    None
}
