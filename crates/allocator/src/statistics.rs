//! What the arena did, in numbers.

use stalloc_device::{DriverWork, Stream};

/// How a request was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServedBy {
    /// At the address that the plan says.
    Planned,
    /// In the arena, where it fitted best.
    BestFit,
    /// By the fallback.
    Fallback,
}

/// Planned requests that were not served from the plan, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// Another block was at the planned address, or one that another stream had not done with.
    pub taken: u64,
    /// The device had no memory to put behind the address, or refused to order the streams.
    pub device: u64,
}

/// Requests that have no planned offset, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unplanned {
    /// The plan expects them, but knows no offset for them.
    pub without_offset: u64,
    /// They are not in the plan, which the program follows else; or there is no plan.
    pub not_in_plan: u64,
    /// It was not known where in the plan the program was.
    pub position_unknown: u64,
    /// A graph was being captured.
    pub capturing: u64,
    /// There were too many streams, or it was too large.
    pub refused: u64,
}

/// Where a program left its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Which request it was, counted from 0.
    pub request: u64,
    /// Rounded bytes and ordinal of the stream that the plan expected; `None` if it expected a section's end.
    pub expected: Option<(u64, u32)>,
    /// Rounded bytes and handle of the stream that were asked for.
    pub seen: (u64, Stream),
}

/// What the arena did so far. Sizes are bytes, rounded up as PyTorch counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Requests in all.
    pub requests: u64,
    /// Requests served from the plan.
    pub planned: u64,
    /// Requests served in the arena where they fitted best.
    pub best_fit: u64,
    /// Requests that the arena did not serve.
    pub fallback: u64,
    /// Planned requests that were not served from the plan.
    pub misses: Misses,
    /// Requests that are not in the plan.
    pub unplanned: Unplanned,
    /// Steps that the program said it began.
    pub steps: u64,
    /// Size of the planned part of the arena.
    pub arena: u64,
    /// Device memory behind the arena now.
    pub reserved: u64,
    /// The most device memory that was behind it.
    pub peak_reserved: u64,
    /// Device memory behind pools of graphs now.
    pub pools: u64,
    /// Remaps: times that memory was taken from where no block was since the budget was used up.
    pub remaps: u64,
    /// Bytes taken so.
    pub remapped: u64,
    /// What all mapping asked of the driver.
    pub driver: DriverWork,
    /// Plans adopted while running.
    pub plans: u64,
    /// Plans given up because remapping took too long under them.
    pub withdrawn: u64,
    /// Live bytes in the arena.
    pub allocated: u64,
    /// The most live bytes in the arena, and memory behind pools, at once.
    pub peak_allocated: u64,
    /// The first request that the plan did not expect.
    pub departure: Option<Departure>,
}

impl Statistics {
    /// Whether the program seems to be another one than the plan's, if there was one: the plan knows nothing of more
    /// than half of the requests.
    pub fn is_of_another_program(&self) -> bool {
        self.arena > 0 && self.unplanned.not_in_plan + self.unplanned.position_unknown > self.requests / 2
    }
}

#[cfg(test)]
mod tests;
