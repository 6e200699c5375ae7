//! What mapping memory asks of a driver: calls, and how long they take.

/// What was asked of a driver to take, map and give back memory, so far.
///
/// A device with a driver measures the time by its clock. Where there is no driver it is modelled by what was published for an
/// A100, microseconds a handle whatever its size (bench_vmm, <https://github.com/magnate3/linux-riscv-dev>): to create 193, to
/// map 1.5, to open to the device 36, to unmap 26. No figure was published for `cudaMalloc` and `cudaFree`; each counts as one handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverWork {
    /// Calls.
    pub calls: u64,
    /// Time that they took.
    pub nanoseconds: u64,
}

const CREATE: u64 = 193_000;
const MAP: u64 = 1_500;
const OPEN: u64 = 36_000;
const UNMAP: u64 = 26_000;

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
        self.add(1, CREATE + MAP + OPEN);
    }

    /// That was given back (`cudaFree`).
    pub fn free(&mut self) {
        self.add(1, UNMAP);
    }
}
