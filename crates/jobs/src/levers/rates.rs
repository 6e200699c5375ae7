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

/// The data sheets: 16-bit dense TFLOP/s, and GB/s of the link to the host in one direction (PCIe 3, 4 and 5 with 16 lanes; NVLink-C2C).
const RATES: [(&str, f64, f64); 22] = [
    ("rtx3080", 59.5, 32.0),
    ("t4", 65.0, 16.0),
    ("rtx4080", 97.5, 32.0),
    ("v100-16gb", 125.0, 16.0),
    ("v100-32gb", 125.0, 16.0),
    ("l4", 121.0, 32.0),
    ("a10", 125.0, 32.0),
    ("rtx3090", 71.0, 32.0),
    ("rtx4090", 165.0, 32.0),
    ("rtx5090", 209.5, 64.0),
    ("a40", 149.7, 32.0),
    ("a6000", 155.0, 32.0),
    ("l40s", 362.0, 32.0),
    ("a100-40gb", 312.0, 32.0),
    ("a100-80gb", 312.0, 32.0),
    ("h100-80gb", 989.0, 64.0),
    ("gh200-96gb", 989.0, 450.0),
    ("h20", 148.0, 64.0),
    ("h200-141gb", 989.0, 64.0),
    ("b200", 2250.0, 64.0),
    ("gb200", 2500.0, 450.0),
    ("gb300", 2500.0, 450.0),
];

/// The rates of a preset; none of a described GPU.
pub fn of(gpu: &Gpu) -> Option<Rates> {
    let (_, flops, host) = RATES.iter().find(|(name, ..)| *name == gpu.name)?;
    Some(Rates { flops: flops * 1e12, host: host * 1e9 })
}

#[cfg(test)]
mod tests {
    use stalloc_dryrun_setup::GPUS;

    use super::*;

    #[test]
    fn every_preset_has_rates() {
        for gpu in GPUS {
            assert!(of(gpu).is_some(), "{}", gpu.name);
        }
    }
}
