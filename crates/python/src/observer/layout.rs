//! Where PyTorch keeps what the observer reads.
//!
//! There is no C interface to it, and a compiler on every user's machine would be needed to follow PyTorch's headers. So each place is
//! found at run time: Python makes tensors with numbers that occur nowhere else, and the numbers are looked for in the objects. If one
//! is not found, nothing is observed.

/// Words of a `TensorImpl` that are looked at; it has 26 or more.
const TENSOR_WORDS: usize = 24;
/// Words of a `StorageImpl` before its data.
const STORAGE_WORDS: usize = 6;
/// Words of a `RecordFunction` that are looked at. It lies on the stack, below the frames of whoever called.
const FUNCTION_WORDS: usize = 80;
/// Arguments of a call lie on the stack as well, not further away than this, in bytes.
const STACK: usize = 1 << 20;

/// Bytes of an `IValue`: a word that holds the value or points to it, and a tag.
pub const VALUE: usize = 16;
/// Tag of a tensor, in all versions.
pub const TENSOR: u32 = 1;
/// Tag of a floating-point number, in all versions.
pub const DOUBLE: u32 = 3;

/// The word at `index` of the object at `base`.
///
/// # Safety
/// The object must have so many words.
pub unsafe fn word(base: usize, index: usize) -> usize {
    // SAFETY: by the contract of this function.
    unsafe { std::ptr::with_exposed_provenance::<usize>(base).add(index).read_unaligned() }
}

fn is_pointer(value: usize) -> bool {
    value > 1 << 16 && value < 1 << 47 && value.is_multiple_of(8)
}

/// What Python knows of a tensor of three dimensions that it made for the search.
pub struct Probe {
    /// Address of the `TensorImpl`.
    pub tensor: usize,
    /// Lengths of its dimensions.
    pub sizes: [usize; 3],
    /// Elements from one to the next.
    pub strides: [usize; 3],
    /// Elements before the first.
    pub offset: usize,
    /// Number of its type, as `c10::ScalarType` counts.
    pub kind: usize,
    /// Its dispatch keys.
    pub keys: usize,
    /// Address of its storage's first byte.
    pub data: usize,
}

/// Words of a `TensorImpl` and its `StorageImpl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorLayout {
    storage: usize,
    data: usize,
    sizes: usize,
    keys: usize,
}

/// A tensor as it lies in memory.
pub struct View {
    /// Number of its type.
    pub kind: u16,
    /// Lengths of its dimensions.
    pub sizes: Vec<usize>,
    /// Elements from one to the next.
    pub strides: Vec<usize>,
    /// Address of its first element.
    pub data: usize,
    /// Elements.
    pub numel: usize,
}

impl TensorLayout {
    /// Finds the places in a tensor of which all is known.
    ///
    /// # Safety
    /// `probe.tensor` must be the address of a `TensorImpl`.
    pub unsafe fn find(probe: &Probe) -> Option<Self> {
        // SAFETY: every TensorImpl has so many words.
        let words: Vec<usize> = (0..TENSOR_WORDS).map(|index| unsafe { word(probe.tensor, index) }).collect();
        let numel = probe.sizes.iter().product::<usize>();
        // Five lengths and five strides are kept in place; then come the offset, the number of elements, the type.
        let sizes = (0..TENSOR_WORDS - 13).find(|&at| {
            words[at] == 3
                && words[at + 1..at + 4] == probe.sizes
                && words[at + 6..at + 9] == probe.strides
                && words[at + 11] == probe.offset
                && words[at + 12] == numel
                && words[at + 13] & 0xffff == probe.kind
        })?;
        let keys = (0..TENSOR_WORDS).find(|&at| words[at] == probe.keys)?;
        // After the pointer to the vtable and one or two counters.
        let (storage, data) = (2..4).find_map(|at| {
            let storage = words[at];
            // SAFETY: the field is the counters' second, a small number, or the storage: a valid pointer.
            let holds = |index: &usize| unsafe { word(storage, *index) } == probe.data;
            is_pointer(storage).then(|| (1..STORAGE_WORDS).find(holds)).flatten().map(|data| (at, data))
        })?;
        Some(Self { storage, data, sizes, keys })
    }

    /// The dispatch keys of a tensor.
    ///
    /// # Safety
    /// `tensor` must be the address of a `TensorImpl`.
    pub unsafe fn keys(self, tensor: usize) -> usize {
        // SAFETY: by the contract of this function.
        unsafe { word(tensor, self.keys) }
    }

    /// Elements of a tensor.
    ///
    /// # Safety
    /// As [`Self::keys`].
    pub unsafe fn numel(self, tensor: usize) -> usize {
        // SAFETY: by the contract of this function.
        unsafe { word(tensor, self.sizes + 12) }
    }

    /// What a tensor is and where; none for one that keeps no storage.
    ///
    /// # Safety
    /// As [`Self::keys`], of a tensor that has sizes, strides and a storage.
    pub unsafe fn view(self, tensor: usize) -> Option<View> {
        // SAFETY: by the contract of this function; more than five dimensions lie elsewhere, all lengths first.
        unsafe {
            let at = |index| word(tensor, self.sizes + index);
            let dimensions = at(0);
            let (sizes, strides) = if dimensions <= 5 {
                ((0..dimensions).map(|d| at(1 + d)).collect(), (0..dimensions).map(|d| at(6 + d)).collect())
            } else {
                let outside = at(1);
                (
                    (0..dimensions).map(|d| word(outside, d)).collect(),
                    (0..dimensions).map(|d| word(outside, dimensions + d)).collect(),
                )
            };
            let kind = (at(13) & 0xffff) as u16;
            let storage = word(tensor, self.storage);
            if storage == 0 {
                return None;
            }
            let data = word(storage, self.data) + at(11) * bytes_of(kind)?;
            Some(View { kind, sizes, strides, data, numel: at(12) })
        }
    }

    /// The values of a list, a vector behind the same counters that a tensor has: their address and number.
    ///
    /// # Safety
    /// `list` must be the address of a `ListImpl`.
    pub unsafe fn list(self, list: usize) -> (usize, usize) {
        // SAFETY: by the contract of this function.
        unsafe { vector(list, self.storage) }
    }

    /// The characters of a string: their address and number.
    ///
    /// # Safety
    /// `string` must be the address of a `ConstantString`.
    pub unsafe fn string(self, string: usize) -> (usize, usize) {
        // SAFETY: by the contract of this function.
        unsafe { (word(string, self.storage), word(string, self.storage + 1)) }
    }
}

/// Address and number of the values in a `std::vector<IValue>` that is the `index`th word of an object.
///
/// # Safety
/// There must be one.
pub unsafe fn vector(object: usize, index: usize) -> (usize, usize) {
    // SAFETY: by the contract of this function.
    let (begin, end) = unsafe { (word(object, index), word(object, index + 1)) };
    (begin, end.saturating_sub(begin) / VALUE)
}

/// Bytes of an element; none for types that are not computed with.
pub fn bytes_of(kind: u16) -> Option<usize> {
    match kind {
        0 | 1 | 11 => Some(1),
        2 | 5 | 15 => Some(2),
        3 | 6 => Some(4),
        4 | 7 => Some(8),
        _ => None,
    }
}

/// Whether a type has fractions.
pub fn is_float(kind: u16) -> bool {
    matches!(kind, 5..=7 | 15)
}

/// Finds, in a `RecordFunction`, the word that points to its `count` inputs, of which the first is `tensor`.
///
/// # Safety
/// `function` must be the address of a `RecordFunction` that is starting.
pub unsafe fn find_inputs(function: usize, count: usize, tensor: usize) -> Option<usize> {
    (8..FUNCTION_WORDS).find(|&at| {
        // SAFETY: the object lies on the stack, as the inputs do; what is read is within the stack.
        unsafe {
            let values = word(function, at);
            word(function, at + 1) == count
                && is_pointer(values)
                && values.abs_diff(function) < STACK
                && is_tensor(values, tensor)
        }
    })
}

/// Finds, in a `RecordFunction`, the vector of outputs, which are `tensor` alone.
///
/// # Safety
/// `function` must be the address of a `RecordFunction` that is ending.
pub unsafe fn find_outputs(function: usize, tensor: usize) -> Option<usize> {
    (8..FUNCTION_WORDS).find(|&at| {
        // SAFETY: as above; a pointer that is followed by one to 16 bytes behind, and by another, is a vector's.
        unsafe {
            let (begin, end, capacity) = (word(function, at), word(function, at + 1), word(function, at + 2));
            is_pointer(begin)
                && begin.checked_add(VALUE) == Some(end)
                && capacity >= end
                && capacity < end + STACK
                && is_tensor(begin, tensor)
        }
    })
}

/// # Safety
/// A value must be at `value`.
unsafe fn is_tensor(value: usize, tensor: usize) -> bool {
    // SAFETY: by the contract of this function.
    unsafe { word(value, 0) == tensor && tag(value) == TENSOR }
}

/// The tag of a value.
///
/// # Safety
/// A value must be at `value`.
pub unsafe fn tag(value: usize) -> u32 {
    // SAFETY: by the contract of this function; the tag is the lower half of the second word.
    unsafe { word(value, 1) as u32 }
}
