//! How a [`Cache`](crate::Cache) behaves: the options of `PYTORCH_CUDA_ALLOC_CONF` and the sizes that follow from them.

/// Every block is a multiple of this many bytes.
pub const MIN_BLOCK: u64 = 512;
/// Requests up to this size (rounded) are served by the small pool.
pub const SMALL_SIZE: u64 = 1 << 20;
/// Segments of the small pool; its pages where segments expand.
pub const SMALL_SEGMENT: u64 = 2 << 20;
/// Requests from this size get a segment of their own size.
pub const MIN_LARGE_SEGMENT: u64 = 10 << 20;
/// Own segments are multiples of this many bytes.
pub const LARGE_ROUNDING: u64 = 2 << 20;

/// Options, with PyTorch's defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `expandable_segments`: one address range per stream and pool, mapped page by page.
    pub expandable_segments: bool,
    /// `max_split_size_mb`, in bytes: blocks from this size are not split. `None`: any block is.
    pub max_split_size: Option<u64>,
    /// `max_non_split_rounding_mb`, in bytes: how much larger than its request an unsplit block may be.
    pub max_non_split_rounding: u64,
    /// `large_segment_size_mb`, in bytes: segments for requests between 1 and 10 MiB, pages of large expandable ones.
    pub large_segment: u64,
    /// `roundup_power2_divisions`: pairs of (bytes from which it holds, divisions), ascending; 0 or 1: off.
    pub roundup_power2_divisions: Vec<(u64, u64)>,
    /// `garbage_collection_threshold`: share of `memory_limit` above which old cached blocks are given back; 0: off.
    pub garbage_collection_threshold: f64,
    /// `set_per_process_memory_fraction`, in bytes: reserve no more than this. Garbage collection needs it.
    pub memory_limit: Option<u64>,
    /// Among free blocks of the same size the one in the segment that was taken first is used, as PyTorch 2.15
    /// does; else the one at the lowest address, as it used to.
    pub older_segments_first: bool,
    /// Bytes added to every request; torch_npu has 32.
    pub padding: u64,
    /// What requests from 2 MiB on start at a multiple of in expandable segments, where there is room; 1: anything.
    /// torch_npu's `base_addr_aligned_kb`.
    pub large_alignment: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            expandable_segments: false,
            max_split_size: None,
            max_non_split_rounding: 20 << 20,
            large_segment: 20 << 20,
            roundup_power2_divisions: Vec::new(),
            garbage_collection_threshold: 0.0,
            memory_limit: None,
            older_segments_first: false,
            padding: 0,
            large_alignment: 1,
        }
    }
}

impl Settings {
    /// How torch_npu's allocator, which descends from PyTorch's, differs from it.
    pub fn torch_npu(self) -> Self {
        Settings { padding: 32, large_alignment: 16 << 10, ..self }
    }

    /// Size of the block that serves `size` bytes; `None` if no block can be that large.
    pub fn rounded(&self, size: u64) -> Option<u64> {
        let size = size.checked_add(self.padding)?;
        if size < MIN_BLOCK {
            return Some(MIN_BLOCK);
        }
        if !self.roundup_power2_divisions.is_empty() {
            let divisions = self.divisions(size);
            if divisions > 1 && size > MIN_BLOCK.saturating_mul(divisions) {
                return next_division(size, divisions);
            }
        }
        size.checked_next_multiple_of(MIN_BLOCK)
    }

    /// Divisions that hold for a size: those of the last entry that starts at or below its power of two.
    fn divisions(&self, size: u64) -> u64 {
        let floor = 1 << size.ilog2();
        let holds = self.roundup_power2_divisions.iter().take_while(|&&(from, _)| from <= floor).last();
        // PyTorch's table starts at 1 MiB; smaller sizes use its first entry.
        holds.or(self.roundup_power2_divisions.first()).map_or(0, |&(_, divisions)| divisions)
    }

    /// Size of the segment that is taken from the device for a block of `size` bytes.
    pub(super) fn segment(&self, size: u64) -> Option<u64> {
        if size <= SMALL_SIZE {
            Some(SMALL_SEGMENT)
        } else if size < MIN_LARGE_SEGMENT {
            Some(self.large_segment.max(size))
        } else {
            size.checked_next_multiple_of(LARGE_ROUNDING)
        }
    }

    /// Largest size of a block that may be split, plus one.
    pub(super) fn split_limit(&self) -> u64 {
        self.max_split_size.unwrap_or(u64::MAX)
    }

    /// Bytes above which garbage is collected, if it is.
    pub(super) fn garbage_limit(&self) -> Option<u64> {
        let limit = self.memory_limit?;
        let threshold = self.garbage_collection_threshold;
        (threshold > 0.0).then_some((threshold * limit as f64) as u64)
    }
}

/// The next larger of the sizes that divide the space between two powers of two into `divisions` equal parts.
fn next_division(size: u64, divisions: u64) -> Option<u64> {
    if size.is_power_of_two() {
        return Some(size);
    }
    let floor = 1u64 << size.ilog2();
    let step = floor >> divisions.ilog2();
    if step == 0 {
        return floor.checked_mul(2);
    }
    size.checked_next_multiple_of(step)
}
