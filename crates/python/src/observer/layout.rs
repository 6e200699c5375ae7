//! Where PyTorch keeps what the observer reads.
//!
//! There is no C interface to it, and a compiler on every user's machine would be needed to follow PyTorch's headers. So each place is
//! found at run time: Python makes tensors with numbers that occur nowhere else, and the numbers are looked for in the objects. If one
//! is not found, nothing is observed.

/// Words of a `TensorImpl` that are looked at; it has 26 or more.
const TENSOR_WORDS: usize = 24;
/// Words of a `StorageImpl` up to its size.
const STORAGE_WORDS: usize = 10;
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
    /// Bytes of its storage.
    pub bytes: usize,
}

/// Where memory is, as `c10::DeviceType` counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Located {
    /// The host's.
    Host = 0,
    /// A device's.
    Device = 1,
}

/// Words of a `TensorImpl` and its `StorageImpl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorLayout {
    storage: usize,
    data: usize,
    bytes: usize,
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

/// The type of memory of which only the bytes count.
const NO_KIND: u16 = u16::MAX;

impl View {
    /// Bytes from the first element to the end of the last.
    pub fn span(&self) -> Option<usize> {
        let width = bytes_of(self.kind)?;
        if self.numel == 0 {
            return Some(0);
        }
        let lasts =
            self.sizes.iter().zip(&self.strides).map(|(size, stride)| size.checked_sub(1)?.checked_mul(*stride));
        let last = lasts.into_iter().try_fold(0_usize, |all, last| all.checked_add(last?))?;
        last.checked_add(1)?.checked_mul(width)
    }

    /// Whether its elements follow each other in order.
    pub fn is_contiguous(&self) -> bool {
        let mut next = 1;
        self.sizes.iter().zip(&self.strides).rev().all(|(size, stride)| {
            let fits = *size == 1 || *stride == next;
            next = next.saturating_mul(*size);
            fits
        })
    }
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
                // The type, then the device: the host, which has no number.
                && words[at + 13] & 0x1_ffff_ffff == probe.kind | 0x1_ff00_0000
        })?;
        let keys = (0..TENSOR_WORDS).find(|&at| words[at] == probe.keys)?;
        // After the pointer to the vtable and one or two counters.
        let (storage, data, bytes) = (2..4).filter(|at| is_pointer(words[*at])).find_map(|storage| {
            // SAFETY: the field is the counters' second, a small number, or the storage: a valid pointer.
            let at = |index: usize| unsafe { word(words[storage], index) };
            let data = (1..STORAGE_WORDS - 2).find(|index| at(*index) == probe.data)?;
            // Before the size there is the device: the host again.
            let is_size = |index: &usize| at(*index) == probe.bytes && at(index - 1) & 0xffff == 0xff00;
            Some((storage, data, (data + 2..STORAGE_WORDS).find(is_size)?))
        })?;
        Some(Self { storage, data, bytes, sizes, keys })
    }

    /// A tensor's storage, if it is memory of `place`: its first address and its bytes, 0 and 0 for an empty one. None for what has no
    /// memory, whatever its keys say: a tensor on meta, a wrapper, a sparse one, a storage that was released.
    ///
    /// # Safety
    /// As [`Self::keys`].
    pub unsafe fn storage(self, tensor: usize, place: Located) -> Option<(usize, usize)> {
        // SAFETY: by the contract of this function; the device of a tensor is behind its type, and there is one if a byte says so.
        unsafe {
            let (device, storage) = (word(tensor, self.sizes + 13) >> 16, word(tensor, self.storage));
            if device & 0xff != place as usize || device >> 16 & 0xff != 1 || storage == 0 {
                return None;
            }
            let (data, bytes) = (word(storage, self.data), word(storage, self.bytes));
            let is_there = word(storage, self.bytes - 1) & 0xff == place as usize;
            // A size that is a symbol's is negative.
            (is_there && bytes <= isize::MAX as usize && (data != 0 || bytes == 0)).then_some((data, bytes))
        }
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

    /// Number of a tensor's type, and its elements, those that are the same memory once.
    ///
    /// # Safety
    /// As [`Self::view`].
    pub unsafe fn elements(self, tensor: usize) -> (u16, u64) {
        // SAFETY: by the contract of this function; more than five dimensions lie elsewhere, and are taken to be all different.
        unsafe {
            let at = |index| word(tensor, self.sizes + index);
            let dimensions = at(0);
            let elements = if dimensions > 5 || at(12) == 0 {
                at(12) as u64
            } else {
                (0..dimensions).filter(|d| at(6 + d) != 0).fold(1, |all, d| u64::saturating_mul(all, at(1 + d) as u64))
            };
            ((at(13) & 0xffff) as u16, elements)
        }
    }

    /// What a tensor is and where in memory of `place`; none if its elements do not lie in its storage, or are of a type that is not
    /// computed with.
    ///
    /// # Safety
    /// As [`Self::keys`], of a tensor that has sizes and strides.
    pub unsafe fn view(self, tensor: usize, place: Located) -> Option<View> {
        // SAFETY: by the contract of this function; more than five dimensions lie elsewhere, all lengths first.
        unsafe {
            let (storage, bytes) = self.storage(tensor, place)?;
            let at = |index| word(tensor, self.sizes + index);
            let dimensions = at(0);
            let (sizes, strides): (Vec<_>, Vec<_>) = if dimensions <= 5 {
                ((0..dimensions).map(|d| at(1 + d)).collect(), (0..dimensions).map(|d| at(6 + d)).collect())
            } else {
                let outside = at(1);
                (
                    (0..dimensions).map(|d| word(outside, d)).collect(),
                    (0..dimensions).map(|d| word(outside, dimensions + d)).collect(),
                )
            };
            let kind = (at(13) & 0xffff) as u16;
            let before = at(11).checked_mul(bytes_of(kind)?)?;
            let view = View { kind, sizes, strides, data: storage.wrapping_add(before), numel: at(12) };
            let span = view.span()?;
            (span == 0 || before.checked_add(span)? <= bytes).then_some(view)
        }
    }

    /// All memory of a device that a tensor's storage has, as bytes.
    ///
    /// # Safety
    /// As [`Self::keys`].
    pub unsafe fn all_of(self, tensor: usize) -> Option<View> {
        // SAFETY: by the contract of this function.
        let (data, numel) = unsafe { self.storage(tensor, Located::Device) }.filter(|(_, bytes)| *bytes > 0)?;
        Some(View { kind: NO_KIND, sizes: vec![numel], strides: vec![1], data, numel })
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
        0 | 1 | 11 | NO_KIND => Some(1),
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
