//! How fast a GPU computes and copies by its data sheet: enough to say whether copies are hidden by a step's operations.

use stalloc_dryrun_setup::Gpu;

/// The most that a GPU does in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Dense operations on 16-bit numbers with its matrix units.
    pub flops: f64,
    /// Bytes to or from the host.
    pub host: f64,
}

impl Rates {
    /// The rates of a GPU.
    pub fn of(gpu: &Gpu) -> Self {
        Rates { flops: f64::from(gpu.peak) * 1e12, host: f64::from(gpu.link) * 1e9 }
    }
}
