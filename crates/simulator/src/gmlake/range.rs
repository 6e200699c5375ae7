//! Parts of segments.

/// Part of a segment, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SegmentRange {
    pub segment: usize,
    pub offset: u64,
    pub bytes: u64,
}

impl SegmentRange {
    /// Its first `bytes` bytes.
    pub fn front(self, bytes: u64) -> Self {
        SegmentRange { bytes, ..self }
    }

    /// Bytes that it shares with a part of the same segment.
    pub fn shared(self, offset: u64, bytes: u64) -> u64 {
        let end = (self.offset + self.bytes).min(offset + bytes);
        end.saturating_sub(self.offset.max(offset))
    }
}
