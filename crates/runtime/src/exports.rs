//! Blocks that other processes may open: a descriptor of ours for each page that such a block lies on, as long as one of them lives.
//!
//! A page is exported once, however many blocks of it are shared. Nothing takes it away from its address meanwhile: the arena remaps and
//! gives back only pages on which no block is.

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
    /// Bytes of a page.
    pub page: u64,
    /// Where the block begins in the first page.
    pub offset: u64,
    /// With the descriptors' numbers it names these pages for good: a number alone is used again once its page was closed.
    pub serial: u64,
    /// The descriptor of each page, in the order of addresses.
    pub descriptors: Vec<RawFd>,
}

#[derive(Debug)]
struct Page {
    descriptor: OwnedFd,
    serial: u64,
    /// Shared blocks that lie on it.
    blocks: u32,
}

/// The exported pages of one arena.
#[derive(Debug, Default)]
pub struct Exports {
    pages: BTreeMap<Address, Page>,
    /// The pages of each shared block.
    blocks: BTreeMap<Address, Range<Address>>,
}

impl Exports {
    /// Lets other processes open a live block.
    pub fn share(&mut self, arena: &mut dyn Serving, block: &LiveBlock) -> Result<Export, String> {
        let page = arena.frame_bytes().ok_or("it is not mapped by pages")?;
        let pages = arena.pages(block).ok_or("it is memory of a CUDA graph, which has several addresses")?;
        if !self.blocks.contains_key(&block.address) {
            descriptors::raise_limit();
            let mut at = pages.start;
            while at < pages.end {
                if let Err(why) = self.export(arena, at) {
                    self.close(pages.start..at);
                    return Err(why);
                }
                at += page;
            }
            self.blocks.insert(block.address, pages.clone());
        }
        let exported = || self.pages.range(pages.clone()).map(|(_, page)| page);
        Ok(Export {
            page,
            offset: block.address - pages.start,
            serial: exported().map(|page| page.serial).max().unwrap_or(0),
            descriptors: exported().map(|page| page.descriptor.as_raw_fd()).collect(),
        })
    }

    fn export(&mut self, arena: &mut dyn Serving, page: Address) -> Result<(), String> {
        if let Some(exported) = self.pages.get_mut(&page) {
            exported.blocks += 1;
            return Ok(());
        }
        let descriptor = arena
            .export(page)
            .map_err(|error| if descriptors::are_left() { error.to_string() } else { NO_DESCRIPTORS.to_owned() })?;
        if !descriptors::can_be_had(&descriptor) {
            return Err(FORBIDDEN.to_owned());
        }
        self.pages.insert(page, Page { descriptor, serial: next_serial(), blocks: 1 });
        Ok(())
    }

    /// One shared block less on these pages.
    fn close(&mut self, pages: Range<Address>) {
        let mut unused = Vec::new();
        for (&at, page) in self.pages.range_mut(pages) {
            page.blocks -= 1;
            if page.blocks == 0 {
                unused.push(at);
            }
        }
        for at in unused {
            self.pages.remove(&at);
        }
    }

    /// A block was given back, shared or not: nobody opens it any more. Who has it open keeps the pages' memory.
    #[cold]
    pub fn forget(&mut self, block: Address) {
        if let Some(pages) = self.blocks.remove(&block) {
            self.close(pages);
        }
    }

    /// Whether no block is shared.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

const NO_DESCRIPTORS: &str = "each of its pages of 2 MiB takes a file descriptor, and this process may open no more: raise the limit (`ulimit -n`)";

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
mod tests {
    #![allow(clippy::unwrap_used)]

    use stalloc_allocator::Arena;
    use stalloc_device::Counting;
    use stalloc_plan::Plan;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn arena() -> Arena<Counting> {
        Arena::new(Counting::new(256 * MIB), &Plan::default()).unwrap()
    }

    fn serve(arena: &mut Arena<Counting>, bytes: u64) -> LiveBlock {
        let address = arena.serve(bytes, 0).unwrap().address;
        arena.block_around(address).unwrap()
    }

    #[test]
    fn a_page_has_one_descriptor_as_long_as_a_shared_block_lies_on_it() {
        let (mut arena, mut exports) = (arena(), Exports::default());
        let [one, other, large] = [3 * MIB / 4, 3 * MIB / 4, MIB].map(|bytes| serve(&mut arena, bytes));
        let first = exports.share(&mut arena, &one).unwrap();
        assert_eq!((first.page, first.offset, first.descriptors.len()), (2 * MIB, 0, 1));
        let second = exports.share(&mut arena, &other).unwrap();
        assert_eq!(second, Export { offset: 3 * MIB / 4, ..first.clone() }, "they are on one page");
        let third = exports.share(&mut arena, &large).unwrap();
        assert_eq!((third.offset, third.descriptors.len()), (3 * MIB / 2, 2));
        assert_eq!(third.descriptors[0], first.descriptors[0]);
        assert_ne!(third.serial, first.serial, "other pages are no part of the first");
        assert_eq!(exports.share(&mut arena, &large), Ok(third.clone()));
        exports.forget(one.address + 512 * MIB);
        exports.forget(one.address);
        exports.forget(large.address);
        assert_eq!((exports.pages.len(), exports.is_empty()), (1, false), "one block is still shared");
        assert_eq!(exports.share(&mut arena, &other), Ok(second));
        exports.forget(other.address);
        assert_eq!((exports.pages.len(), exports.is_empty()), (0, true));
        let anew = exports.share(&mut arena, &large).unwrap();
        assert!(anew.serial > third.serial, "descriptors' numbers may be the same, and mean other memory");
    }

    #[test]
    fn what_cannot_be_shared_leaves_nothing_behind() {
        let (mut arena, mut exports) = (arena(), Exports::default());
        let block = serve(&mut arena, 5 * MIB);
        let beyond = LiveBlock { size: 64 * MIB, ..block };
        assert!(exports.share(&mut arena, &beyond).unwrap_err().contains("share what is not mapped"));
        assert_eq!((exports.pages.len(), exports.is_empty()), (0, true));
        assert!(arena.pool_begin((0, 1)));
        let address = arena.pool_serve((0, 1), MIB, 0).unwrap();
        let of_graph = arena.block_around(address).unwrap();
        assert!(exports.share(&mut arena, &of_graph).unwrap_err().contains("CUDA graph"));
        let mut solid = Arena::solid(Counting::new(256 * MIB), &Plan::default(), 8 * MIB).unwrap();
        let block = serve(&mut solid, MIB);
        assert!(exports.share(&mut solid, &block).is_err());
        assert!(exports.is_empty());
    }
}
