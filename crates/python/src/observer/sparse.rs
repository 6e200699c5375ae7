//! How many elements a sparse tensor has, each place counted once: what PyTorch's `_coalesce` reads from the device.
//!
//! The tensor itself has no memory that can be read, but the operation asks for its places, a plain tensor.

use std::collections::HashSet;

use super::layout::View;
use super::stand_in::{self, ByteOrigin};

/// The type of indices.
const INT64: u16 = 4;

/// Whether a tensor has places, one in each column.
pub fn are_places(view: &View) -> bool {
    view.kind == INT64 && view.sizes.len() == 2 && view.is_contiguous()
}

/// How many places differ, and how that is known; not at all: as many as there are.
pub fn different(places: &View) -> (usize, Option<ByteOrigin>) {
    let known = places.span().and_then(|bytes| stand_in::known(places.data, bytes));
    let Some((bytes, source)) = known.filter(|_| places.numel > 0) else { return (places.sizes[1], None) };
    let numbers = bytes.as_chunks::<8>().0;
    let column = |index| numbers.iter().skip(index).step_by(places.sizes[1]).collect::<Vec<_>>();
    ((0..places.sizes[1]).map(column).collect::<HashSet<_>>().len(), Some(source))
}
