//! Blocks that other processes may open: a descriptor of ours for each handle that such a block lies on, as long as one of them lives.
//!
//! A handle is exported once, however many blocks of it are shared. Nothing takes it away from its address meanwhile: the arena remaps and
//! gives back only handles on which no block is.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use stalloc_allocator::LiveBlock;
use stalloc_device::Address;

use crate::descriptors;
use crate::serving::Serving;

/// What another process opens a block by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Bytes of a handle.
    pub page: u64,
    /// Where the block begins in the first of them.
    pub offset: u64,
    /// With the descriptors' numbers it names these handles for good: a number alone is used again once its handle was closed.
    pub serial: u64,
    /// The descriptor of each handle, in the order of addresses.
    pub descriptors: Vec<RawFd>,
}

#[derive(Debug)]
struct Exported {
    descriptor: OwnedFd,
    serial: u64,
    /// Shared blocks that lie on it.
    blocks: u32,
}

/// The exported handles of one arena.
#[derive(Debug, Default)]
pub struct Exports {
    handles: BTreeMap<Address, Exported>,
    /// From where to where the handles of each shared block go.
    blocks: BTreeMap<Address, Range<Address>>,
}

impl Exports {
    /// Lets other processes open a live block.
    pub fn share(&mut self, arena: &mut dyn Serving, block: &LiveBlock) -> Result<Export, String> {
        let handles = arena.handles(block).ok_or("it is memory of a CUDA graph, or not mapped by pages")?;
        let (Some(first), Some(last)) = (handles.first(), handles.last()) else {
            return Err("it has no memory".to_owned());
        };
        let bytes = first.end - first.start;
        if handles.iter().any(|handle| handle.end - handle.start != bytes) {
            let has_graphs = arena.statistics().pools > 0;
            return Err(if has_graphs { MIXED_WITH_GRAPHS } else { MIXED }.to_owned());
        }
        let whole = first.start..last.end;
        if !self.blocks.contains_key(&block.address) {
            descriptors::raise_limit();
            for handle in &handles {
                if let Err(why) = self.export(arena, handle.start) {
                    self.close(whole.start..handle.start);
                    return Err(why);
                }
            }
            self.blocks.insert(block.address, whole.clone());
        }
        let exported = || self.handles.range(whole.clone()).map(|(_, exported)| exported);
        Ok(Export {
            page: bytes,
            offset: block.address - whole.start,
            serial: exported().map(|exported| exported.serial).max().unwrap_or(0),
            descriptors: exported().map(|exported| exported.descriptor.as_raw_fd()).collect(),
        })
    }

    fn export(&mut self, arena: &mut dyn Serving, handle: Address) -> Result<(), String> {
        if let Some(exported) = self.handles.get_mut(&handle) {
            exported.blocks += 1;
            return Ok(());
        }
        let descriptor = arena
            .export(handle)
            .map_err(|error| if descriptors::are_left() { error.to_string() } else { NO_DESCRIPTORS.to_owned() })?;
        if !descriptors::can_be_had(&descriptor) {
            return Err(FORBIDDEN.to_owned());
        }
        self.handles.insert(handle, Exported { descriptor, serial: next_serial(), blocks: 1 });
        Ok(())
    }

    /// One shared block less on these handles.
    fn close(&mut self, handles: Range<Address>) {
        let mut unused = Vec::new();
        for (&at, exported) in self.handles.range_mut(handles) {
            exported.blocks -= 1;
            if exported.blocks == 0 {
                unused.push(at);
            }
        }
        for at in unused {
            self.handles.remove(&at);
        }
    }

    /// A block was given back, shared or not: nobody opens it any more. Who has it open keeps the memory.
    #[cold]
    pub fn forget(&mut self, block: Address) {
        if let Some(handles) = self.blocks.remove(&block) {
            self.close(handles);
        }
    }

    /// A block that is shared, if one is.
    pub fn first(&self) -> Option<Address> {
        self.blocks.keys().next().copied()
    }

    /// Whether no block is shared.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

const NO_DESCRIPTORS: &str = "each of its pages of 2 MiB takes a file descriptor, and this process may open no more: raise the limit (`ulimit -n`)";

/// The package's `_serve.sharing` knows the words, and has PyTorch's own allocator serve the tensor instead.
const MIXED: &str = "it lies on handles of several lengths";

const MIXED_WITH_GRAPHS: &str = "it lies on handles of several lengths, and CUDA graphs may use its address";

const FORBIDDEN: &str = "this system forbids the call that hands file descriptors to other processes (pidfd_getfd); in a container, \
                         add the capability SYS_PTRACE";

/// Never the same twice on this machine, of which processes come and go under the same number.
fn next_serial() -> u64 {
    static FIRST: OnceLock<u64> = OnceLock::new();
    static GIVEN: AtomicU64 = AtomicU64::new(0);
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    FIRST.get_or_init(clock).wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests;
