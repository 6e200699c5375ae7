//! What tells two traces of the same program apart from traces of different ones.

use rustc_hash::FxHashMap;

use crate::ids::StreamId;
use crate::model::{Event, Request, Trace};

/// Numbers streams in the order in which requests first come on them: the recorder's own numbers also depend on what
/// its allocator did.
#[derive(Default)]
pub(crate) struct StreamOrder {
    numbers: FxHashMap<StreamId, u32>,
}

impl StreamOrder {
    pub(crate) fn number(&mut self, request: &Request) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry(request.stream).or_insert(next)
    }
}

impl Trace {
    /// A number that is the same for the same requests and frees in the same order, and that no accident repeats:
    /// FNV-1a (64 bits) over sizes, streams and the order of allocations and frees. Addresses, stacks, marks, clocks
    /// and what the recorded allocator did with its segments do not count; neither does when other streams were done
    /// with a buffer, which depends on the device's speed. O(events).
    pub fn fingerprint(&self) -> u64 {
        let mut hash = Fnv::default();
        let mut streams = StreamOrder::default();
        for request in self.requests.iter().filter(|r| r.alloc.is_none()) {
            hash.add(0);
            hash.add(request.size);
            hash.add(streams.number(request).into());
        }
        for event in &self.events {
            match *event {
                Event::Alloc(id) => {
                    let request = self.request(id);
                    hash.add(1);
                    hash.add(request.size);
                    hash.add(streams.number(request).into());
                }
                Event::FreeRequested(id) => {
                    hash.add(2);
                    hash.add(id.0.into());
                }
                _ => {}
            }
        }
        hash.0
    }
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo).
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, value: u64) {
        for byte in value.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}
