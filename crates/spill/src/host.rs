//! Where victims lie in host memory: the lowest offset that nothing has that waits there at the same time.

use crate::SavedTensor;

/// What copies of a GPU like offsets to be multiples of, bytes.
const ALIGNMENT: u64 = 512;

/// An offset for each of `chosen`, which are in the order in which they are packed; none where `limit` bytes do not suffice.
/// Also the bytes that they take together.
pub fn offsets(candidates: &[SavedTensor], chosen: &[usize], limit: u64) -> (Vec<Option<u64>>, u64) {
    // Offset, end and when it is free again, by offset.
    let mut waiting: Vec<(u64, u64, usize)> = Vec::new();
    let mut top = 0;
    let found = chosen.iter().map(|&index| {
        let SavedTensor { bytes, packed, needed, .. } = candidates[index];
        waiting.retain(|&(_, _, free)| free > packed);
        let mut offset = 0;
        let mut place = 0;
        for &(start, end, _) in &waiting {
            if start.saturating_sub(offset) >= bytes && start >= offset {
                break;
            }
            offset = end.next_multiple_of(ALIGNMENT);
            place += 1;
        }
        let end = offset.saturating_add(bytes);
        if end > limit {
            return None;
        }
        waiting.insert(place, (offset, end, needed));
        top = top.max(end);
        Some(offset)
    });
    let found = found.collect();
    (found, top)
}
