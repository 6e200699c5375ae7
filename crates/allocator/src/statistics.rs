//! What the arena did, in numbers.

use stalloc_device::Stream;

/// How a request was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// At the address that the plan says.
    Planned,
    /// In the arena, at an address found while running.
    Dynamic,
    /// By the allocator beside the arena.
    Fallback,
}

/// Planned requests that were not served from the plan, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// Another block was in the place.
    pub occupied: u64,
    /// A freed block was in the place that another stream had not done with.
    pub pending: u64,
    /// The device had no memory to put behind the place, or refused to order the streams.
    pub device: u64,
}

/// Requests that are not in the plan, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unplanned {
    /// They belong to a group of dynamic requests.
    pub dynamic: u64,
    /// They came in addition while the program followed the plan.
    pub extra: u64,
    /// The program was not following the plan.
    pub lost: u64,
    /// A graph was being captured.
    pub capturing: u64,
    /// The plan had been switched off, since the program is another one; or there were too many streams.
    pub refused: u64,
}

/// Where a program left its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Which request it was, counted from 0.
    pub request: u64,
    /// Rounded bytes and ordinal of the stream that the plan expected; `None` if it expected a dynamic request or the
    /// section's end.
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
    /// Requests served in the arena by search.
    pub dynamic: u64,
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
    /// Times that memory was taken away from where no block was: each waits for the device.
    pub moves: u64,
    /// Bytes of memory taken away so.
    pub moved: u64,
    /// Live bytes in the arena.
    pub allocated: u64,
    /// The most live bytes in the arena.
    pub peak_allocated: u64,
    /// The first request that the plan did not expect.
    pub departure: Option<Departure>,
    /// The program turned out to be another one than the plan's, which was switched off.
    pub switched_off: bool,
}

impl Statistics {
    /// Whether the program seems to be another one than the plan's: it was switched off, or the plan knows nothing of
    /// more than half of the requests.
    pub fn is_of_another_program(&self) -> bool {
        self.switched_off || self.unplanned.extra + self.unplanned.lost > self.requests / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_another_one_if_the_plan_knows_nothing_of_most_of_its_requests() {
        let told = |requests, extra, lost, dynamic| {
            let unplanned = Unplanned { extra, lost, dynamic, ..Unplanned::default() };
            Statistics { requests, unplanned, ..Statistics::default() }.is_of_another_program()
        };
        assert!(told(100, 30, 30, 0));
        assert!(!told(100, 20, 30, 50), "what the plan knows to vary is expected");
        assert!(!told(0, 0, 0, 0));
        assert!(Statistics { switched_off: true, ..Statistics::default() }.is_of_another_program());
    }
}
