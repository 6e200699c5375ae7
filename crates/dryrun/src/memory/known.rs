//! What is known about the content of device memory.
//!
//! Values are not computed, so nearly nothing is. But bytes that the program itself copied from the host, or set with memset, are
//! there for certain until something that could write runs: any kernel, any call of a library. Until then reads are exact.

use crate::execution::unknown_writes;
use std::collections::VecDeque;

/// Copies that are larger are not kept.
const LARGEST: usize = 1 << 20;
/// Bytes kept in all; the oldest go first.
const KEPT: usize = 16 << 20;

enum Content {
    Bytes(Box<[u8]>),
    Fill(u8),
    /// Written, but not known with what.
    Lost,
}

struct Write {
    start: u64,
    bytes: u64,
    content: Content,
}

/// Writes since the last piece of work, oldest first.
#[derive(Default)]
pub struct Known {
    writes: VecDeque<Write>,
    kept: usize,
    work: u64,
}

impl Known {
    /// The host's bytes were copied to `start`.
    pub fn copied(&mut self, start: u64, bytes: &[u8]) {
        let content = if bytes.len() <= LARGEST {
            self.kept += bytes.len();
            Content::Bytes(bytes.into())
        } else {
            Content::Lost
        };
        self.push(start, bytes.len() as u64, content);
    }

    /// `bytes` at `start` were set to `value`.
    pub fn filled(&mut self, start: u64, bytes: u64, value: u8) {
        self.push(start, bytes, Content::Fill(value));
    }

    /// Something was written there, nobody knows what.
    pub fn forget(&mut self, start: u64, bytes: u64) {
        self.catch_up();
        if !self.writes.is_empty() {
            self.push(start, bytes, Content::Lost);
        }
    }

    /// Reads `target.len()` bytes at `start`; false, and nothing done, unless they are known.
    pub fn read(&mut self, start: u64, target: &mut [u8]) -> bool {
        self.catch_up();
        let length = target.len() as u64;
        let latest = self.writes.iter().rev().find(|write| {
            write.start < start.saturating_add(length) && start < write.start.saturating_add(write.bytes)
        });
        // What several writes made up together is rare, and counts as unknown.
        let Some(write) = latest.filter(|write| {
            write.start <= start && length <= write.bytes && start - write.start <= write.bytes - length
        }) else {
            return false;
        };
        match &write.content {
            Content::Bytes(bytes) => {
                let from = (start - write.start) as usize;
                target.copy_from_slice(&bytes[from..from + target.len()]);
                true
            }
            Content::Fill(value) => {
                target.fill(*value);
                true
            }
            Content::Lost => false,
        }
    }

    /// `bytes` were copied from one place of a device to another.
    pub fn moved(&mut self, from: u64, to: u64, bytes: u64) {
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        if length <= LARGEST && !self.writes.is_empty() {
            let mut buffer = vec![0; length];
            if self.read(from, &mut buffer) {
                return self.copied(to, &buffer);
            }
        }
        self.forget(to, bytes);
    }

    fn push(&mut self, start: u64, bytes: u64, content: Content) {
        self.catch_up();
        self.writes.push_back(Write { start, bytes, content });
        while self.kept > KEPT || self.writes.len() > 4096 {
            match self.writes.pop_front() {
                Some(Write { content: Content::Bytes(bytes), .. }) => self.kept -= bytes.len(),
                Some(_) => {}
                None => break,
            }
        }
    }

    /// Forgets everything when work was started since.
    fn catch_up(&mut self) {
        let work = unknown_writes();
        if work != self.work {
            self.work = work;
            self.kept = 0;
            self.writes.clear();
        }
    }
}
