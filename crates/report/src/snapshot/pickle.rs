//! Writes Python's pickle format: protocol 2, which every reader of snapshots knows, memory_viz's own included.

use std::collections::HashMap;

/// A pickle in the making. Containers are opened and closed; what they hold is written between.
#[derive(Default)]
pub struct Pickle {
    bytes: Vec<u8>,
    memo: u32,
    strings: HashMap<String, u32>,
}

/// A value that was written once and can be named again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoNumber(u32);

impl Pickle {
    /// An empty pickle.
    pub fn new() -> Self {
        Pickle { bytes: vec![0x80, 2], ..Pickle::default() }
    }

    /// The bytes, after one value was written.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.push(b'.');
        self.bytes
    }

    /// An integer.
    pub fn int(&mut self, value: u64) {
        match value {
            0..=0xff => self.bytes.extend([b'K', value as u8]),
            0x100..=0xffff => {
                self.bytes.push(b'M');
                self.bytes.extend((value as u16).to_le_bytes());
            }
            0x1_0000..=0x7fff_ffff => {
                self.bytes.push(b'J');
                self.bytes.extend((value as i32).to_le_bytes());
            }
            // Nine bytes: the first bit of the last one is the sign.
            _ => {
                let length = if value >> 63 == 0 { 8 } else { 9 };
                self.bytes.extend([0x8a, length]);
                self.bytes.extend(&(u128::from(value)).to_le_bytes()[..length as usize]);
            }
        }
    }

    /// `True` or `False`.
    pub fn bool(&mut self, value: bool) {
        self.bytes.push(if value { 0x88 } else { 0x89 });
    }

    /// A string; the second time only its number.
    pub fn string(&mut self, text: &str) {
        if let Some(&memo) = self.strings.get(text) {
            return self.get(MemoNumber(memo));
        }
        self.bytes.push(b'X');
        self.bytes.extend((text.len() as u32).to_le_bytes());
        self.bytes.extend(text.as_bytes());
        let MemoNumber(memo) = self.remember();
        self.strings.insert(text.to_owned(), memo);
    }

    /// Opens a list: what is written until [`Pickle::close_list`] is in it.
    pub fn open_list(&mut self) {
        self.bytes.extend(b"](");
    }

    /// Ends one portion of a list and begins another: some readers cannot take a long list at once.
    pub fn next_portion(&mut self) {
        self.bytes.extend(b"e(");
    }

    /// Closes a list.
    pub fn close_list(&mut self) {
        self.bytes.push(b'e');
    }

    /// Opens a dictionary: keys and values alternate until [`Pickle::close_dict`].
    pub fn open_dict(&mut self) {
        self.bytes.extend(b"}(");
    }

    /// Closes a dictionary.
    pub fn close_dict(&mut self) {
        self.bytes.push(b'u');
    }

    /// A pair of integers.
    pub fn pair(&mut self, a: u64, b: u64) {
        self.int(a);
        self.int(b);
        self.bytes.push(0x86);
    }

    /// Remembers the value written last.
    pub fn remember(&mut self) -> MemoNumber {
        let memo = self.memo;
        self.memo += 1;
        self.bytes.push(b'r');
        self.bytes.extend(memo.to_le_bytes());
        MemoNumber(memo)
    }

    /// A remembered value again: the same object.
    pub fn get(&mut self, memo: MemoNumber) {
        self.bytes.push(b'j');
        self.bytes.extend(memo.0.to_le_bytes());
    }
}
