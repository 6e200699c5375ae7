//! Numbers of few bytes: LEB128, and zigzag for differences.

/// Appends a number, 7 bits a byte.
pub(super) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends the difference between a number and the one before it, and remembers the number.
pub(super) fn put_delta(out: &mut Vec<u8>, number: u64, before: &mut u64) {
    let delta = number.wrapping_sub(*before) as i64;
    put(out, ((delta << 1) ^ (delta >> 63)) as u64);
    *before = number;
}

/// Appends a text with its length.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// The content of a chunk does not follow its format.
#[derive(Debug)]
pub(super) struct Malformed;

/// Reads what the functions above wrote.
pub(super) struct VarintCursor<'a> {
    rest: &'a [u8],
}

impl<'a> VarintCursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        VarintCursor { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        let (&byte, rest) = self.rest.split_first().ok_or(Malformed)?;
        self.rest = rest;
        Ok(byte)
    }

    pub(super) fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            if shift == 63 && bits > 1 {
                return Err(Malformed);
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Malformed)
    }

    /// A number below 2^32.
    pub(super) fn small(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.number()?).map_err(|_| Malformed)
    }

    pub(super) fn delta(&mut self, before: &mut u64) -> Result<u64, Malformed> {
        let coded = self.number()?;
        let delta = (coded >> 1) as i64 ^ -((coded & 1) as i64);
        *before = before.wrapping_add(delta as u64);
        Ok(*before)
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// A length, of things that take at least a byte each: so no more than are left.
    pub(super) fn length(&mut self) -> Result<usize, Malformed> {
        let length = self.number()?;
        if length > self.rest.len() as u64 { Err(Malformed) } else { Ok(length as usize) }
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Malformed> {
        let length = self.length()?;
        std::str::from_utf8(self.bytes(length)?).map_err(|_| Malformed)
    }
}
