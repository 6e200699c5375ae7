//! Numbers as the page reads them: LEB128 in one block of bytes, optionally as differences.
//!
//! Small numbers and small steps take one byte, and what repeats compresses well behind them.

use serde::Serialize;

/// Where a column lies in the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ColumnPlace {
    /// Offset of its first byte.
    pub at: usize,
    /// How many numbers it holds.
    pub n: usize,
    /// Whether each number is the zigzag-coded difference to the one before.
    pub delta: bool,
}

/// A block of columns in the making.
#[derive(Debug, Default)]
pub struct Columns {
    bytes: Vec<u8>,
}

impl Columns {
    /// Adds numbers as they are.
    pub fn plain(&mut self, values: impl IntoIterator<Item = u64>) -> ColumnPlace {
        let mut column = ColumnPlace { at: self.bytes.len(), n: 0, delta: false };
        for value in values {
            column.n += 1;
            self.push(value);
        }
        column
    }

    /// Adds numbers as differences; each must be below 2^62.
    pub fn delta(&mut self, values: impl IntoIterator<Item = u64>) -> ColumnPlace {
        let mut column = ColumnPlace { at: self.bytes.len(), n: 0, delta: true };
        let mut last = 0i64;
        for value in values {
            column.n += 1;
            let value = value as i64;
            let step = value.wrapping_sub(last);
            last = value;
            // Odd codes are negative steps: -1 is 1, 1 is 2.
            let code = if step < 0 { (step.unsigned_abs() << 1).wrapping_sub(1) } else { (step as u64) << 1 };
            self.push(code);
        }
        column
    }

    /// The block.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn push(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

#[cfg(test)]
mod tests;
