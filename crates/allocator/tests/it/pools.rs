//! Pools of graphs: what a graph was given stays its own as long as somebody holds its pool, however pages are shared inside of it.
//!
//! `STALLOC_POOL_CASES=100000 cargo test -p stalloc-allocator --test pools` tries more random programs.
use std::collections::BTreeMap;

use proptest::prelude::*;
use stalloc_allocator::{Arena, Freed, LiveBlock, PoolId};
use stalloc_device::{Address, Counting, Device, Error, MemoryInfo, Shared, Stream};
use stalloc_plan::Plan;

const MIB: u64 = 1 << 20;

/// A device that knows which memory is behind an address.
#[derive(Debug)]
struct Physical {
    memory: Counting,
    /// Where the memory of each mapping lies, among all that there ever was.
    mapped: BTreeMap<Address, (u64, u64)>,
    next: u64,
    aliases: u64,
    maps_once: bool,
    is_synchronized: bool,
    /// Events recorded.
    records: u64,
}

impl Physical {
    fn new(capacity: u64, maps_once: bool) -> Shared<Self> {
        let (memory, mapped) = (Counting::new(capacity), BTreeMap::new());
        Shared::new(Physical { memory, mapped, next: 0, aliases: 0, maps_once, is_synchronized: false, records: 0 })
    }

    /// The pieces of memory behind a block.
    fn behind(&self, start: Address, bytes: u64) -> Vec<(u64, u64)> {
        let (mut at, end, mut pieces) = (start, start + bytes, Vec::new());
        while at < end {
            let (&from, &(size, place)) = self.mapped.range(..=at).next_back().unwrap();
            assert!(at < from + size, "there is no memory at {at:#x}");
            let until = end.min(from + size);
            pieces.push((place + (at - from), place + (until - from)));
            at = until;
        }
        pieces
    }
}

impl Device for Physical {
    type Event = ();

    fn alloc(&mut self, bytes: u64) -> Result<Address, Error> {
        self.memory.alloc(bytes)
    }
    fn free(&mut self, address: Address) -> Result<(), Error> {
        self.memory.free(address)
    }
    fn page_size(&self) -> Option<u64> {
        self.memory.page_size()
    }
    fn reserve(&mut self, bytes: u64) -> Result<Address, Error> {
        self.memory.reserve(bytes)
    }
    fn release(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.memory.release(address, bytes)
    }
    fn map(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.memory.map(address, bytes)?;
        self.mapped.insert(address, (bytes, self.next));
        self.next += bytes;
        Ok(())
    }
    fn alias(&mut self, from: Address, to: Address, bytes: u64) -> Result<(), Error> {
        if self.maps_once {
            return Err(Error::Unsupported("map a page twice"));
        }
        self.memory.alias(from, to, bytes)?;
        self.aliases += 1;
        self.mapped.insert(to, self.mapped[&from]);
        Ok(())
    }
    fn unmap(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.memory.unmap(address, bytes)?;
        self.mapped.retain(|start, _| !(address..address + bytes).contains(start));
        Ok(())
    }
    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        self.memory.memory_info()
    }
    fn record(&mut self, _stream: Stream) -> Result<(), Error> {
        self.is_synchronized = false;
        self.records += 1;
        Ok(())
    }
    fn completed(&mut self, _event: &()) -> Result<bool, Error> {
        Ok(self.is_synchronized)
    }
    fn wait(&mut self, _event: &()) -> Result<(), Error> {
        Ok(())
    }
    fn queue_wait(&mut self, _stream: Stream, _event: &()) -> Result<(), Error> {
        Ok(())
    }
    fn synchronize(&mut self) -> Result<(), Error> {
        self.is_synchronized = true;
        Ok(())
    }
}

fn arena(device: &Shared<Physical>) -> Arena<Shared<Physical>> {
    Arena::new(device.clone(), &Plan::default()).unwrap()
}

const POOL: PoolId = (0, 1);

/// Captures graphs of growing shapes into one pool; what is reserved then, and the most that one of them needed.
fn growing_shapes(device: &Shared<Physical>) -> (u64, u64) {
    let mut arena = arena(device);
    let mut most = 0;
    for shape in 1..=24u64 {
        assert!(arena.pool_begin(POOL));
        arena.set_capturing(true);
        let sizes: Vec<u64> = (1..9).map(|layer| shape * layer * 700_000).collect();
        let blocks: Vec<_> = sizes.iter().map(|&size| arena.pool_serve(POOL, size, 7).unwrap().address).collect();
        most = most.max(sizes.iter().map(|size| size.next_multiple_of(512)).sum::<u64>());
        for block in blocks {
            arena.free(block).unwrap();
        }
        arena.set_capturing(false);
    }
    (arena.reserved(), most)
}

#[test]
fn graphs_of_growing_shapes_need_what_the_largest_needs() {
    let device = Physical::new(1 << 40, false);
    let (reserved, most) = growing_shapes(&device);
    assert!(reserved < most + most / 50, "{reserved} for {most}");
    assert!(device.lock().aliases > 0);
}

#[test]
fn where_pages_are_mapped_once_only_pools_serve_all_the_same_and_sizes_fragment_them() {
    let device = Physical::new(1 << 40, true);
    let (reserved, most) = growing_shapes(&device);
    assert!(reserved > 2 * most, "{reserved} for {most}");
    let device = device.lock();
    assert_eq!((device.aliases, device.memory.used()), (0, 0));
}

#[test]
fn memory_goes_back_when_the_last_graph_and_its_outputs_are_gone() {
    let device = Physical::new(1 << 40, false);
    let mut arena = arena(&device);
    arena.pool_begin(POOL);
    arena.pool_begin(POOL);
    let large = arena.pool_serve(POOL, 9 * MIB, 7).unwrap().address;
    let output = arena.pool_serve(POOL, MIB, 7).unwrap().address;
    arena.free(large).unwrap();
    arena.pool_end(POOL);
    arena.give_back(u64::MAX).unwrap();
    assert!(arena.reserved() >= 10 * MIB, "one graph is left");
    arena.pool_end(POOL);
    arena.give_back(u64::MAX).unwrap();
    assert_eq!(arena.reserved(), 2 * MIB, "an output is left");
    arena.free(output).unwrap();
    arena.give_back(u64::MAX).unwrap();
    assert_eq!((arena.reserved(), device.lock().memory.used()), (0, 0));
}

#[test]
fn addresses_do_not_run_out_however_many_graphs_come_and_go() {
    let device = Physical::new(64 * MIB, false);
    let mut arena = arena(&device);
    for graph in 0..1000 {
        arena.pool_begin((0, graph));
        for size in [3 * MIB, 5 * MIB, MIB] {
            let block = arena.pool_serve((0, graph), size, 7).unwrap().address;
            arena.free(block).unwrap();
        }
        arena.pool_end((0, graph));
        arena.give_back(u64::MAX).unwrap();
    }
    assert_eq!(arena.reserved(), 0);
}

#[test]
fn what_another_stream_uses_is_not_reused_before_that_stream_is_done() {
    let device = Physical::new(1 << 40, false);
    let mut arena = arena(&device);
    arena.pool_begin(POOL);
    arena.set_capturing(true);
    let first = arena.pool_serve(POOL, 2 * MIB, 7).unwrap().address;
    arena.record_stream(first, 8).unwrap();
    assert!(arena.free_told(first).unwrap().pending);
    assert!(arena.free(first).is_err());
    device.lock().is_synchronized = true;
    let second = arena.pool_serve(POOL, 2 * MIB, 7).unwrap().address;
    assert_ne!(first, second);
    assert_eq!(device.lock().records, 0, "no event is used while a graph is captured");
    arena.set_capturing(false);
    assert_ne!(
        arena.pool_serve(POOL, 2 * MIB, 7).unwrap().address,
        first,
        "its event is recorded now, and not completed"
    );
    assert_eq!(arena.reserved(), 6 * MIB);
    device.lock().is_synchronized = true;
    assert_eq!(arena.pool_serve(POOL, 2 * MIB, 7).unwrap().address, first);
}

#[test]
fn a_block_that_is_given_back_says_what_it_took_and_what_was_asked_for() {
    let mut arena = arena(&Physical::new(1 << 30, false));
    arena.pool_begin(POOL);
    for (requested, size) in [(1, 512), (512, 512), (1000, 1024), (3 * MIB - 1, 3 * MIB)] {
        let block = arena.pool_serve(POOL, requested, 7).unwrap().address;
        assert_eq!(arena.free(block).unwrap(), Freed { size, requested });
        let block = arena.pool_serve(POOL, requested, 7).unwrap().address;
        let told = arena.free_told(block).unwrap();
        assert_eq!((told.size, told.requested, told.pending), (size, requested, false));
    }
}

#[test]
fn where_no_page_can_be_mapped_there_are_no_pools() {
    let mut arena = Arena::new(Counting::without_pages(64 * MIB), &Plan::default()).unwrap();
    assert!(!arena.pool_begin(POOL) && arena.pool_serve(POOL, MIB, 0).is_none());
}

#[test]
fn memory_that_was_freed_in_a_pool_of_gigabytes_is_used_again_wherever_it_lies() {
    let mut arena = arena(&Physical::new(8 << 30, false));
    assert!(arena.pool_begin(POOL));
    let all: Vec<Address> = (0..1000).map(|_| arena.pool_serve(POOL, 4 * MIB, 0).unwrap().address).collect();
    let reserved = arena.statistics().pools;
    for &address in all.iter().skip(1).step_by(2) {
        arena.free(address).unwrap();
    }
    (0..500).for_each(|_| _ = arena.pool_serve(POOL, 4 * MIB, 0).unwrap());
    assert_eq!(arena.statistics().pools, reserved);
}

#[test]
fn what_lived_in_a_pool_lives_again_and_what_came_since_is_freed() {
    let mut arena = arena(&Physical::new(64 * MIB, false));
    assert!(arena.pool_begin(POOL));
    let [first, second] = [3, 5].map(|size| arena.pool_serve(POOL, size * MIB, 0).unwrap().address);
    let lived = [first, second].map(|address| arena.block_around(address).unwrap());
    arena.free(second).unwrap();
    let since = arena.pool_serve(POOL, MIB, 0).unwrap().address;
    let freed = [first, since].map(|address| arena.block_around(address).unwrap());
    let (was, mut is) = arena.pool_restore(POOL, &lived);
    assert_eq!((was.len(), was.contains(&freed[0]), was.contains(&freed[1])), (2, true, true));
    is.sort_unstable_by_key(|block| block.address);
    assert_eq!(is, lived);
    assert_eq!([first, second].map(|address| arena.block_around(address).unwrap()), lived);
}

/// What a program does next.
#[derive(Clone, Debug)]
enum Act {
    Begin(u64),
    End(u64),
    Pool(u64, u64, Stream),
    Open(u64, Stream),
    Free(usize),
    RecordStream(usize, Stream),
    Capture(bool),
    GiveBack,
    Remember(u64),
    Restore,
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => proptest::sample::select(vec![1u64, 512, 65536, MIB, 3 * MIB, 8 * MIB]),
        2 => (1..20_000u64).prop_map(|granules| granules * 512),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => (1..4u64).prop_map(Act::Begin),
        1 => (1..4u64).prop_map(Act::End),
        12 => (1..4u64, size(), 0..2u64).prop_map(|(pool, size, stream)| Act::Pool(pool, size, stream)),
        4 => (size(), 0..2u64).prop_map(|(size, stream)| Act::Open(size, stream)),
        12 => any::<usize>().prop_map(Act::Free),
        2 => (any::<usize>(), 0..2u64).prop_map(|(block, stream)| Act::RecordStream(block, stream)),
        2 => any::<bool>().prop_map(Act::Capture),
        2 => Just(Act::GiveBack),
        1 => (1..4u64).prop_map(Act::Remember),
        1 => Just(Act::Restore),
    ]
}

/// A block that lives: whose it is, its bytes, its stream, and the memory behind it.
#[derive(Clone, Debug)]
struct Live {
    pool: Option<u64>,
    bytes: u64,
    stream: Stream,
    pieces: Vec<(u64, u64)>,
}

fn overlap(a: &[(u64, u64)], b: &[(u64, u64)]) -> bool {
    a.iter().any(|a| b.iter().any(|b| a.0 < b.1 && b.0 < a.1))
}

/// A program, and what it may rely on.
struct Program {
    device: Shared<Physical>,
    arena: Arena<Shared<Physical>>,
    live: BTreeMap<Address, Live>,
    /// How many hold each pool.
    held: BTreeMap<u64, u32>,
    /// What graphs of held pools may have in them: an address, and the memory that was behind it.
    promised: Vec<(Address, Live)>,
    remembered: Option<(u64, Vec<LiveBlock>)>,
}

impl Program {
    fn handed_out(&mut self, address: Address, size: u64, stream: Stream, pool: Option<u64>) {
        let bytes = size.max(1).next_multiple_of(512);
        let live = Live { pool, bytes, stream, pieces: self.device.lock().behind(address, bytes) };
        for (other, block) in &self.live {
            assert!(!overlap(&live.pieces, &block.pieces), "{address:#x} shares memory with {other:#x}, which lives");
        }
        for (other, promised) in &self.promised {
            let may_share = promised.pool == pool && promised.stream == stream;
            assert!(
                may_share || !overlap(&live.pieces, &promised.pieces),
                "{address:#x} has memory of a graph's {other:#x}"
            );
        }
        if pool.and_then(|pool| self.held.get(&pool)).is_some_and(|&users| users > 0) {
            self.promised.push((address, live.clone()));
        }
        assert_eq!(self.live.insert(address, live).map(|block| block.bytes), None);
    }

    fn free(&mut self, address: Address) {
        self.live.remove(&address).unwrap();
        self.arena.free(address).unwrap();
        assert!(self.arena.free(address).is_err(), "nothing is freed twice");
    }

    fn live_at(&self, nth: usize) -> Option<Address> {
        self.live.keys().nth(nth.checked_rem(self.live.len())?).copied()
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Begin(pool) => {
                assert!(self.arena.pool_begin((0, pool)));
                *self.held.entry(pool).or_default() += 1;
            }
            Act::End(pool) => {
                self.arena.pool_end((0, pool));
                let users = self.held.entry(pool).or_default();
                *users = users.saturating_sub(1);
                if *users == 0 {
                    self.promised.retain(|(_, block)| block.pool != Some(pool));
                }
            }
            Act::Pool(pool, size, stream) => {
                let is_held = self.held.get(&pool).is_some_and(|&users| users > 0);
                let served = self.arena.pool_serve((0, pool), size, stream);
                assert!(is_held || served.is_none());
                if let Some(served) = served {
                    self.handed_out(served.address, size, stream, Some(pool));
                }
            }
            Act::Open(size, stream) => {
                if let Some(served) = self.arena.serve(size, stream) {
                    self.handed_out(served.address, size, stream, None);
                }
            }
            Act::Free(nth) => self.live_at(nth).into_iter().for_each(|address| self.free(address)),
            Act::RecordStream(nth, stream) => {
                let address = self.live_at(nth);
                address.into_iter().for_each(|address| self.arena.record_stream(address, stream).unwrap());
            }
            Act::Capture(on) => self.arena.set_capturing(on),
            Act::GiveBack => drop(self.arena.give_back(u64::MAX).unwrap()),
            Act::Remember(pool) => {
                let parts = self.arena.pool_parts();
                let live = parts.into_iter().filter(|part| part.pool == (0, pool) && !part.free && !part.block.pending);
                self.remembered = Some((pool, live.map(|part| part.block).collect()));
            }
            Act::Restore => {
                let Some((pool, blocks)) = self.remembered.take() else { return };
                let (freed, live) = self.arena.pool_restore((0, pool), &blocks);
                for block in freed {
                    self.live.remove(&block.address).unwrap();
                }
                assert!(live.iter().all(|block| blocks.contains(block)));
                for block in live {
                    self.handed_out(block.address, block.requested, block.stream, Some(pool));
                }
            }
        }
    }

    fn check(&self) {
        let device = self.device.lock();
        for (address, promised) in &self.promised {
            assert_eq!(device.behind(*address, promised.bytes), promised.pieces, "a graph's memory is gone");
        }
        drop(device);
        let parts = self.arena.pool_parts();
        let total: u64 = parts.iter().map(|part| part.block.size).sum();
        assert_eq!(total, self.arena.statistics().pools, "each piece of memory is in one part");
        let mut ends = parts.windows(2).map(|pair| (pair[0].block.address + pair[0].block.size, pair[1].block.address));
        assert!(ends.all(|(end, next)| end <= next));
        let pooled = self.live.iter().filter(|(_, block)| block.pool.is_some());
        for (&address, block) in pooled {
            let found = self.arena.block_around(address + block.bytes - 1).unwrap();
            assert_eq!((found.address, found.size, found.stream), (address, block.bytes, block.stream));
        }
    }
}

fn cases() -> u32 {
    std::env::var("STALLOC_POOL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_graphs_memory_is_its_own(acts in proptest::collection::vec(act(), 1..150), maps_once in proptest::bool::weighted(0.2), capacity in 20..400u64) {
        let device = Physical::new(capacity * MIB, maps_once);
        let arena = arena(&device);
        let (live, held, promised) = Default::default();
        let mut program = Program { device: device.clone(), arena, live, held, promised, remembered: None };
        for act in acts {
            program.act(act);
            program.check();
        }
        drop(program);
        prop_assert_eq!(device.lock().memory.used(), 0);
    }
}
