//! The process that is recorded.

use std::collections::BTreeMap;

use stalloc_trace::AllocatorSettings;

/// What every trace of a process says about it.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Its rank, as far as it is known yet.
    pub rank: u32,
    /// How its allocator is set up.
    pub settings: AllocatorSettings,
    /// What else is to be told: `torch`, `device_name`, `total_memory`, `command`...
    pub metadata: BTreeMap<String, String>,
}
