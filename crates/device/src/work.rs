//! What mapping memory asks of a driver: calls, and how long they take.

use stalloc_common::driver_prices::{ALLOC, CREATE, FREE, GIVE_BACK, MAP, OPEN, UNMAP};

/// What was asked of a driver to take, map and give back memory, so far.
///
/// A device with a driver measures the time by its clock. Where there is no driver it is modelled: see [`stalloc_common::driver_prices`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverWork {
    /// Calls.
    pub calls: u64,
    /// Time that they took.
    pub nanoseconds: u64,
}

impl DriverWork {
    fn add(&mut self, calls: u64, nanoseconds: u64) {
        self.calls += calls;
        self.nanoseconds += nanoseconds;
    }

    /// A handle was created and mapped.
    pub fn map(&mut self) {
        self.add(3, CREATE + MAP + OPEN);
    }

    /// A handle was mapped once more.
    pub fn map_again(&mut self) {
        self.add(2, MAP + OPEN);
    }

    /// A mapping was undone.
    pub fn unmap(&mut self) {
        self.add(1, UNMAP);
    }

    /// Memory was taken by one call (`cudaMalloc`).
    pub fn alloc(&mut self) {
        self.add(1, ALLOC);
    }

    /// That was given back (`cudaFree`).
    pub fn free(&mut self) {
        self.add(1, FREE);
    }

    /// The last mapping of a handle was undone, and the handle given back.
    pub fn give_back(&mut self) {
        self.add(1, GIVE_BACK);
    }
}
