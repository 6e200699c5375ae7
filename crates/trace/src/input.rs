//! Bytes of a file: decompressed on the way, counted, never held as a whole.

use std::io::{self, Read};

use crate::error::{Fault, FilePosition, RECORD_AGAIN, Result};

pub(crate) const BUFFER: usize = 256 << 10;

/// Told about progress: bytes of the file read so far, and its length (0 if unknown).
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Counts what is read of the file itself, so that progress is right for compressed files as well.
struct CountingReader<'a, R> {
    inner: R,
    done: u64,
    total: u64,
    reported: u64,
    progress: Progress<'a>,
}

impl<R: Read> Read for CountingReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.done += read as u64;
        if self.done - self.reported >= 1 << 20 || read == 0 {
            self.reported = self.done;
            (self.progress)(self.done, self.total.max(self.done));
        }
        Ok(read)
    }
}

/// A buffered, decompressing source that knows where it is.
pub(crate) struct InputBytes<'a> {
    inner: Box<dyn Read + 'a>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes consumed before `buffer[start]`.
    position: u64,
}

impl<'a> InputBytes<'a> {
    /// The decompressed bytes of `file`, which is `total` bytes long.
    pub(crate) fn open<R: Read + 'a>(mut file: R, total: u64, progress: Progress<'a>) -> Result<Self> {
        let mut magic = [0u8; 4];
        let mut have = 0;
        while have < magic.len() {
            match file.read(&mut magic[have..]) {
                Ok(0) => break,
                Ok(read) => have += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Fault::io(0, error)),
            }
        }
        let head = io::Cursor::new(magic[..have].to_vec());
        let whole = CountingReader { inner: head.chain(file), done: 0, total, reported: 0, progress };
        let inner: Box<dyn Read + 'a> = match magic[..have] {
            [0x28, 0xB5, 0x2F, 0xFD] | [0x50..=0x5F, 0x2A, 0x4D, 0x18] => {
                Box::new(zstd::Decoder::new(whole).map_err(|error| Fault::io(0, error))?)
            }
            [0x1F, 0x8B, ..] => Box::new(flate2::read::MultiGzDecoder::new(whole)),
            _ => Box::new(whole),
        };
        Ok(InputBytes { inner, buffer: vec![0; BUFFER], start: 0, end: 0, position: 0 })
    }

    /// Where the next byte is, counted from 0 after decompression.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Reads more until `wanted` bytes (at most the buffer's size) are there or the input ends.
    pub(crate) fn fill(&mut self, wanted: usize) -> Result<&[u8]> {
        debug_assert!(wanted <= BUFFER);
        if self.end - self.start < wanted {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            while self.end < wanted {
                match self.inner.read(&mut self.buffer[self.end..]) {
                    Ok(0) => break,
                    Ok(read) => self.end += read,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(Fault::io(self.position + (self.end - self.start) as u64, error)),
                }
            }
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// What is buffered now.
    pub(crate) fn peek(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// How much is buffered now, bytes.
    pub(crate) fn buffered(&self) -> usize {
        self.end - self.start
    }

    /// Skips `count` buffered bytes.
    pub(crate) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start);
        self.start += count;
        self.position += count as u64;
    }

    /// The next byte, or `None` at the end.
    pub(crate) fn next_byte(&mut self) -> Result<Option<u8>> {
        if self.start == self.end && self.fill(1)?.is_empty() {
            return Ok(None);
        }
        let byte = self.buffer[self.start];
        self.consume(1);
        Ok(Some(byte))
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let Some(bytes) = self.fill(N)?.first_chunk::<N>().copied() else { return Err(self.ends_early()) };
        self.consume(N);
        Ok(bytes)
    }

    /// Appends the next `count` bytes to `into`. Memory grows with what is there, not with what `count` claims.
    pub(crate) fn take(&mut self, mut count: u64, into: &mut Vec<u8>) -> Result<()> {
        while count > 0 {
            let available = self.fill(1)?;
            if available.is_empty() {
                return Err(self.ends_early());
            }
            let part = usize::try_from(count).unwrap_or(usize::MAX).min(available.len());
            into.extend_from_slice(&available[..part]);
            self.consume(part);
            count -= part as u64;
        }
        Ok(())
    }

    /// The next line without its end, into `line`; false at the end of the input. Lines longer than `limit` bytes
    /// are refused.
    pub(crate) fn line(&mut self, limit: usize, number: u64, line: &mut Vec<u8>) -> Result<bool> {
        line.clear();
        loop {
            let available = self.fill(1)?;
            if available.is_empty() {
                return Ok(!line.is_empty());
            }
            let end = available.iter().position(|&b| b == b'\n');
            let part = end.unwrap_or(available.len());
            if line.len() + part > limit {
                let problem = format!("is longer than {limit} bytes");
                return Err(Fault::new(FilePosition::Line(number), problem, "is this a text file?"));
            }
            line.extend_from_slice(&available[..part]);
            self.consume(part + usize::from(end.is_some()));
            if end.is_some() {
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(true);
            }
        }
    }

    /// The error for an input that ends in the middle of something.
    pub(crate) fn ends_early(&self) -> Fault {
        let at = self.position + self.buffered() as u64;
        Fault::new(FilePosition::Byte(at), "the file ends too early", RECORD_AGAIN)
    }
}
