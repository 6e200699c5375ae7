//! Pools: the free blocks of one stream, small or large.

use rustc_hash::FxHashMap;
use stalloc_device::{Address, Stream};

use crate::block::BlockId;
use crate::index::FreeIndex;

/// The pools that serve every request; other owners' pools (of CUDA graphs, say) can only be adopted.
pub(super) const GENERAL: u32 = 0;

/// Free blocks of one stream.
#[derive(Debug)]
pub(super) struct FreePool {
    pub owner: u32,
    pub stream: Stream,
    pub small: bool,
    pub free: FreeIndex,
    /// Parts of expandable ranges without memory behind them, in the order of addresses.
    pub unmapped: Vec<(Address, BlockId)>,
}

impl FreePool {
    /// Notes an unmapped block.
    pub fn insert_unmapped(&mut self, address: Address, block: BlockId) {
        let place = self.unmapped.partition_point(|&(a, _)| a < address);
        self.unmapped.insert(place, (address, block));
    }

    /// Forgets an unmapped block.
    pub fn remove_unmapped(&mut self, address: Address) {
        if let Ok(place) = self.unmapped.binary_search_by_key(&address, |&(a, _)| a) {
            self.unmapped.remove(place);
        }
    }
}

/// All pools. Those of one owner and stream stand side by side: small, then large.
#[derive(Debug, Default)]
pub(super) struct FreePools {
    list: Vec<FreePool>,
    by_stream: FxHashMap<(u32, Stream), u32>,
    /// The stream that was asked for last in the general pools, and its small pool.
    last: Option<(Stream, u32)>,
    /// Small pools in the order of (owner, stream).
    order: Vec<u32>,
}

impl FreePools {
    /// Index of a general pool.
    #[inline]
    pub fn general(&mut self, stream: Stream, small: bool) -> u32 {
        let pair = match self.last {
            Some((last, pair)) if last == stream => pair,
            _ => {
                let pair = self.pair(GENERAL, stream);
                self.last = Some((stream, pair));
                pair
            }
        };
        pair + u32::from(!small)
    }

    /// Index of an owner's pool.
    pub fn of(&mut self, owner: u32, stream: Stream, small: bool) -> u32 {
        self.pair(owner, stream) + u32::from(!small)
    }

    fn pair(&mut self, owner: u32, stream: Stream) -> u32 {
        let list = &mut self.list;
        let order = &mut self.order;
        *self.by_stream.entry((owner, stream)).or_insert_with(|| {
            let pair = list.len() as u32;
            for small in [true, false] {
                list.push(FreePool { owner, stream, small, free: FreeIndex::default(), unmapped: Vec::new() });
            }
            let key = |&p: &u32| (list[p as usize].owner, list[p as usize].stream);
            let place = order.partition_point(|p| key(p) < (owner, stream));
            order.insert(place, pair);
            pair
        })
    }

    /// Every pool.
    pub fn iter(&self) -> std::slice::Iter<'_, FreePool> {
        self.list.iter()
    }

    /// Indices of the general small or large pools, in the order of stream handles, as PyTorch walks them.
    pub fn walk(&self, small: bool) -> Vec<u32> {
        let general = self.order.iter().filter(|&&p| self[p].owner == GENERAL);
        general.map(|&p| p + u32::from(!small)).collect()
    }
}

impl std::ops::Index<u32> for FreePools {
    type Output = FreePool;

    fn index(&self, pool: u32) -> &FreePool {
        &self.list[pool as usize]
    }
}

impl std::ops::IndexMut<u32> for FreePools {
    fn index_mut(&mut self, pool: u32) -> &mut FreePool {
        &mut self.list[pool as usize]
    }
}
