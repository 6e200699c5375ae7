//! Every tuned number of pinned memory, with what it trades.

stalloc_common::tuned! {
    /// A new region of memory that cannot be remapped has about this part of what there is: more means fewer and slower calls of
    /// the driver, and more memory that is not needed. By replays of `bench/pinned.py` with 128, 256, 512: caches 1.105, 1.061, 1.063; all in
    /// one job 1.004, 1.030, 1.011 with 247, 340, 478 calls.
    region_share: u64 = 256;

    /// With this part of what is held in regions without a block, these become one: more merges less often.
    merge_share: u64 = 4;

    /// An idle region is broken for a block if it serves so many like it.
    break_share: u32 = 8;

    /// A block that leaves this part of itself free in an idle region fits it well.
    loose_share: u32 = 4;

    /// Regions are kept idle until this part of what blocks need at the peak is held beyond it.
    excess_share: u64 = 20;

    /// Regions are exchanged to keep idle ones whole until so many times what is held was taken from the driver.
    driver_share: u64 = 4;
}
