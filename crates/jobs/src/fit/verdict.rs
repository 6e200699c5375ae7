//! Whether a card holds a job under an allocator, and by how much.

use stalloc_dryrun_setup::{GPUS, Gpu};

use crate::fit::Need;
use crate::fit::evaluate::{FitsGpu, RankDevice};

/// Whether a job fits a card under one allocator, and what its worst GPU needs and leaves, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardVerdict {
    /// Whether it fits on every device.
    pub fits: FitsGpu,
    /// The most that it held on a device, bytes.
    pub peak_reserved: u64,
    /// The same if the GPU is far behind the host; none where that changes nothing.
    pub peak_reserved_late: Option<u64>,
    /// The least memory that the job gets through with on its fullest device, all that is outside PyTorch included at its most; bytes.
    pub needed: Option<u64>,
    /// What is left of the card then, negative where it is missing; bytes.
    pub left: Option<i64>,
    /// How long a step takes on the slowest device, microseconds.
    pub step_us: Option<u64>,
    /// The rank and its device that need most under this allocator.
    pub rank: (u32, u32),
    /// The preset with the least memory that would do.
    pub smallest_gpu: Option<&'static str>,
}

/// What several devices say together about an allocator on a card: the worst of them. Which card would do is not looked for.
pub fn verdict(devices: &[RankDevice], allocator: usize, gpu: &Gpu) -> CardVerdict {
    let needs = || devices.iter().map(|device| (device, &device.needs[allocator]));
    let needed = |(device, need): (&RankDevice, &Need)| Some(need.smallest?.saturating_add(device.outside.high));
    // What cannot be found is more than what can; of equals the first rank.
    let most = needs().max_by_key(|&(device, need)| {
        let needed = needed((device, need));
        (needed.is_none(), needed, need.peak_reserved, std::cmp::Reverse((device.rank, device.device)))
    });
    let needed = most.and_then(needed);
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    CardVerdict {
        fits: needs().map(|(_, need)| need.fits).min().unwrap_or(FitsGpu::No),
        peak_reserved: needs().map(|(_, need)| need.peak_reserved).max().unwrap_or(0),
        peak_reserved_late: needs().filter_map(|(_, need)| need.peak_reserved_late).max(),
        needed,
        step_us: needs().filter_map(|(_, need)| need.step_us).max(),
        left: needed.map(|needed| signed(gpu.total).saturating_sub(signed(needed))),
        rank: most.map_or((0, 0), |(device, _)| (device.rank, device.device)),
        smallest_gpu: None,
    }
}

/// The preset with the least memory that would do. Its number of multiprocessors may change what the job needs by a little.
pub fn smallest_gpu(devices: &[RankDevice], allocator: usize) -> Option<&'static str> {
    let would_do = |card: &&Gpu| {
        devices.iter().all(|device| {
            // What the card's own context takes, and what the groups take here.
            let groups: u64 = device.outside.parts.iter().skip(1).map(|part| part.high).sum();
            let taken = card.context_range.1.saturating_add(groups);
            device.needs[allocator].smallest.is_some_and(|needed| needed.saturating_add(taken) <= card.total)
        })
    };
    GPUS.iter().find(would_do).map(|card| card.name)
}
