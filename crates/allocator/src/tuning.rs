//! Every tuned number of the arena, with what it trades and the measurement that chose it.
//!
//! The measurements are those of `bench/jobs.py`: jobs whose steps vary, planned from one seed and judged on another.

/// In [`crate::Budget::Tight`], the part of the peak of live bytes that may be mapped beyond it: smaller is tighter and
/// remaps more often.
pub const TIGHT_SLACK: u64 = 128;

/// A remap takes at least this part of what is mapped, if so much is cold: a larger piece makes fewer remaps, each of which
/// waits for the device, of more bytes, each of which is mapped again. At a capacity of 1.05 of the peak of live bytes, seven
/// jobs that vary most: 64: 117 late remaps; 16: 101; 4: 78, with twice the bytes in tight mode.
pub const REMAP_SHARE: u64 = 8;

/// Ranges that another stream used last which one search passes over before it takes one of them and waits.
pub const FOREIGN_RANGES: usize = 64;

/// Most sections that are told apart where one begins.
pub const CANDIDATES: usize = 16;

/// Sections that are equal up to this entry are not told apart any more: the likeliest is taken.
pub const UNDECIDED: u32 = 512;

/// How far away an entry is still nearby, entries: there two requests in a row tell the position.
pub const NEARBY: u32 = 64;

/// With more requests than this among the last 64 that do not fit, the position is unknown.
pub const MISFITS: u32 = 48;
