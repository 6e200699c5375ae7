//! What mapping memory asks of a driver: calls, and how long they take.

/// What was asked of a driver to take, map and give back memory, so far.
///
/// A device with a driver measures the time by its clock. Where there is no driver it is modelled by what was measured on an H200
/// (bench/results/gpu.md), microseconds a handle: to create 9.5, to map 1.5, to open to the device 22, to unmap 15.5, to give back 10.
/// Opening and unmapping several handles by one call saves nothing; a handle of 32 MiB takes 1.6 times what one of 2 MiB does, one of
/// 512 MiB 4.6 times. `cudaMalloc` takes 31 and `cudaFree` 30 for 2 MiB, 61 and 161 for 512 MiB. An A100 was published to take 193 to
/// create, 36 to open and 26 to unmap (bench_vmm, <https://github.com/magnate3/linux-riscv-dev>).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverWork {
    /// Calls.
    pub calls: u64,
    /// Time that they took.
    pub nanoseconds: u64,
}

const CREATE: u64 = 9_500;
const MAP: u64 = 1_500;
const OPEN: u64 = 22_000;
const UNMAP: u64 = 15_500;
const GIVE_BACK: u64 = 10_000;
const ALLOC: u64 = 31_000;
const FREE: u64 = 30_000;

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
