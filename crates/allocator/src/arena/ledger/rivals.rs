//! What PyTorch's allocators would hold for the same requests: the least that they can, or what a model of them says that follows the
//! journal, where that is more.
//!
//! Both of them, with expandable segments or without, keep memory for small and for large requests of each stream apart, and as long as
//! the device has room, none of it passes to another. So each of them holds at least the sum of these parts' peaks. Blocks that other
//! streams have not done with count: they cannot be handed out there either. O(1) a request, two words for each part.

/// The largest request that PyTorch serves from its small pool, granules of 512 bytes: 1 MiB.
const SMALL: u32 = 2048;

/// Granules live now, and at most so far.
#[derive(Clone, Copy, Debug, Default)]
struct RivalPool {
    live: u64,
    most: u64,
}

/// Parts by stream: small and large requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Rivals {
    parts: Vec<[RivalPool; 2]>,
    /// The sum of what each held at most, granules.
    held: u64,
    /// Bytes that a model said the better of them holds since what is cached was given back last, and how often it was.
    told: u64,
    given_back: u64,
}

impl Rivals {
    /// A stream got a block.
    #[inline]
    pub fn alloc(&mut self, stream: u16, granules: u32) {
        let stream = usize::from(stream);
        if self.parts.len() <= stream {
            self.parts.resize_with(stream + 1, Default::default);
        }
        let part = &mut self.parts[stream][usize::from(granules > SMALL)];
        part.live += u64::from(granules);
        if part.live > part.most {
            self.held += part.live - part.most;
            part.most = part.live;
        }
    }

    /// A block of a stream can be used again.
    #[inline]
    pub fn free(&mut self, stream: u16, granules: u32) {
        self.parts[usize::from(stream)][usize::from(granules > SMALL)].live -= u64::from(granules);
    }

    /// A model says what the better of them holds, who heard that what is cached was given back so often. One that is behind says nothing.
    pub fn told(&mut self, bytes: u64, given_back: u64) {
        if given_back == self.given_back {
            self.told = bytes;
        }
    }

    /// Bytes that the better of them holds.
    pub fn held(&self) -> u64 {
        self.told.max(self.held * crate::GRANULE)
    }

    /// What is cached was given back: only what lives is held.
    pub fn give_back(&mut self) {
        (self.held, self.told, self.given_back) = (0, 0, self.given_back + 1);
        for part in self.parts.iter_mut().flatten() {
            part.most = part.live;
            self.held += part.live;
        }
    }
}

#[cfg(test)]
mod tests;
