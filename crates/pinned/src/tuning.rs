//! Every tuned number of pinned memory, with what it trades.

stalloc_common::tuned! {
    /// A new region of memory that cannot be remapped has about this part of what there is: more means fewer and slower calls of
    /// the driver, and more memory that is not needed.
    region_share: u64 = 256;

    /// An idle region is broken only if this part of what is held is idle.
    idle_share: u64 = 4;

    /// A block that leaves this part of itself free in an idle region fits it well.
    loose_share: u32 = 4;

    /// Regions are kept idle until this part of what blocks need at the peak is held beyond it.
    excess_share: u64 = 20;
}
