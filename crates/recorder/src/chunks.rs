//! A file that holds whole chunks only.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

/// A trace's file. What could be written of a chunk in part, as on a full disk, is taken back.
pub struct Chunks {
    file: File,
    /// Bytes of whole chunks.
    length: u64,
}

impl Chunks {
    /// An empty file.
    pub fn new(file: File) -> Self {
        Chunks { file, length: 0 }
    }

    /// Bytes that the file holds.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Cuts the file to its first `length` bytes, where a chunk ends.
    pub fn cut(&mut self, length: u64) -> io::Result<()> {
        self.file.set_len(length)?;
        self.file.seek(SeekFrom::Start(length))?;
        self.length = length;
        Ok(())
    }
}

impl Write for Chunks {
    fn write(&mut self, chunk: &[u8]) -> io::Result<usize> {
        if let Err(error) = self.file.write_all(chunk) {
            self.cut(self.length)?;
            return Err(error);
        }
        self.length += chunk.len() as u64;
        Ok(chunk.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
