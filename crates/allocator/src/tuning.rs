//! Every tuned number of the arena and every mechanism that can be left out, with what it trades. What each is worth is in
//! docs/dynamic.md, measured by `examples/ablation.rs` of the simulator.

stalloc_tuning::tuned! {
    /// The tightest class of free ranges comes first; if not, the lowest address does.
    best_fit: bool = true;

    /// What has no planned offset stays above the plan's addresses as long as there is memory there.
    above_plan: bool = true;

    /// Before memory is remapped, a place on mapped memory is looked for, however badly it fits.
    mapped_first: bool = true;

    /// In tight mode, the part of the peak of live bytes that may be mapped beyond it: smaller is tighter and remaps more
    /// often.
    tight_slack: u64 = 1024;

    /// In tight mode, what was idle for a while is given back if it is at least this part of what is mapped: smaller gives back more
    /// often, and waits for the device each time.
    idle_share: u64 = 16;

    /// After a remap, this part of what is mapped may be remapped too before places on mapped memory are preferred again: more packs
    /// blocks better and remaps more often.
    remap_share: u64 = 128;

    /// Ranges that another stream used last which one search passes over before it takes one of them and waits.
    foreign_ranges: usize = 64;

    /// Most sections that are told apart where one begins.
    candidates: usize = 16;

    /// Sections that are equal up to this entry are not told apart any more: the likeliest is taken.
    undecided: u32 = 512;

    /// How far away an entry is still nearby, entries: there two requests in a row tell the position.
    nearby: u32 = 64;

    /// With more requests than this among the last 64 that do not fit, the position is unknown.
    misfits: u32 = 48;

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
