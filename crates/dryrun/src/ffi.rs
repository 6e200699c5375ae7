//! What crosses the C boundary: places to write results to, strings, and the macro that exports functions.
//!
//! A value of these types only comes from a foreign caller, who by CUDA's contract passes null or a valid pointer. That is why an
//! exported function that takes them can be a safe `extern "C" fn`: safe Rust cannot make the argument up.

use std::ffi::{CStr, c_char};

/// Defines exported functions. `build.rs` reads their names from lines that begin with `fn`.
macro_rules! exports {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {
        $($(#[$meta])* #[unsafe(no_mangle)] pub extern "C" fn $name($($argument: $kind),*) $(-> $result)? $body)*
    };
}

/// A place for a result; may be null.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Writes `value`, if there is a place for it.
    pub fn set(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: a foreign caller passes null or a place that it may be written to; C does not promise Rust's alignment.
            unsafe { self.0.write_unaligned(value) }
        }
    }

    /// Writes the `index`th element of an array, if there is one.
    pub fn set_at(self, index: usize, value: T) {
        if !self.0.is_null() {
            // SAFETY: as above; the caller states the length of the array and `index` is below it.
            unsafe { self.0.add(index).write_unaligned(value) }
        }
    }

    /// The same place for a narrower value.
    pub fn narrow<U>(self) -> Out<U> {
        debug_assert!(size_of::<U>() <= size_of::<T>());
        Out(self.0.cast())
    }

    /// The `index`th element of an array of places, if there is an array.
    pub fn offset(self, index: usize) -> Self {
        if self.0.is_null() {
            return self;
        }
        // SAFETY: as above: the caller states the length of the array and `index` is below it.
        Self(unsafe { self.0.add(index) })
    }

    /// Whether the caller gave no place.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl<T: Copy> Out<T> {
    /// What is there now.
    pub fn get(self) -> Option<T> {
        // SAFETY: as in `set`; used only where CUDA defines the argument as both input and output.
        (!self.0.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }
}

/// An argument that is read; may be null.
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// The value.
    pub fn get(self) -> Option<T> {
        self.at(0)
    }

    /// The `index`th element of an array.
    pub fn at(&self, index: usize) -> Option<T> {
        // SAFETY: a foreign caller passes null or an array that is longer than `index`, as its other arguments say.
        (!self.0.is_null()).then(|| unsafe { self.0.add(index).read_unaligned() })
    }
}

#[cfg(test)]
impl<T> Out<T> {
    /// As a test passes it.
    pub fn to(place: &mut T) -> Self {
        Self(place)
    }
}

#[cfg(test)]
impl<T> In<T> {
    /// As a test passes it.
    pub fn of(value: &T) -> Self {
        Self(value)
    }

    /// As a test passes nothing.
    pub fn none() -> Self {
        Self(std::ptr::null())
    }
}

/// A string argument; may be null.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(*const c_char);

impl Text {
    /// The string, empty when there is none or when it is no UTF-8.
    pub fn get(&self) -> &str {
        if self.0.is_null() {
            return "";
        }
        // SAFETY: a foreign caller passes a string that ends with a zero byte and outlives the call.
        unsafe { CStr::from_ptr(self.0) }.to_str().unwrap_or("")
    }
}

/// A buffer for a string; may be null.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct TextOut(*mut c_char);

impl TextOut {
    /// Writes as much of `text` as `size` bytes hold, with a final zero byte.
    pub fn set(self, text: &str, size: usize) {
        let Some(room) = size.checked_sub(1).filter(|_| !self.0.is_null()) else {
            return;
        };
        let length = text.len().min(room);
        // SAFETY: a foreign caller passes a buffer of `size` bytes, and `length < size`.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), self.0.cast(), length);
            self.0.add(length).write(0);
        }
    }
}

/// A constant string result.
pub fn text(text: &'static CStr) -> *const c_char {
    text.as_ptr()
}
