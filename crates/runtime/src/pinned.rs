//! Pinned memory: page-locked memory of the host, for copies that need not wait.
//!
//! PyTorch takes each block from the driver alone, in the next power of two. Here blocks lie where they fit best in a few large
//! regions. As in PyTorch, a block that streams use (`record`) is handed out again only once their events have completed, as
//! the host has seen; and no lock is held while a driver works, since it may wait for a thread that wants one. What cannot be
//! served is PyTorch's, in its words.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustc_hash::FxHashMap;
use stalloc_device::{Address, Error, HostMemory, PageLocked, Stream};
use stalloc_pinned::{Regions, UNIT};

use crate::counters::{Counter, Durations};
use crate::{fork, order};

/// What is counted of pinned memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinnedCounters {
    /// Blocks that the program has, or that streams have not done with.
    pub blocks: Counter,
    /// Their bytes, rounded up.
    pub bytes: Counter,
    /// The bytes that the program asked for and has.
    pub requested: Counter,
    /// Regions.
    pub regions: Counter,
    /// Their bytes.
    pub reserved: Counter,
    /// Calls of the driver that took a region.
    pub taking: Durations,
    /// Calls that gave one back.
    pub giving_back: Durations,
}

impl PinnedCounters {
    fn counters(&mut self) -> [&mut Counter; 5] {
        [&mut self.blocks, &mut self.bytes, &mut self.requested, &mut self.regions, &mut self.reserved]
    }
}

/// A stream of a GPU.
type User = (u32, Stream);

/// A block that the program has.
#[derive(Debug)]
struct HeldBlock {
    requested: u64,
    /// Who was given work on it.
    users: Vec<User>,
}

/// A block that was given back, and what must be complete before it is handed out again.
#[derive(Debug)]
struct PendingBlock<E> {
    address: Address,
    events: Vec<E>,
}

#[derive(Debug)]
struct Books<E> {
    regions: Regions,
    /// The GPU by whose driver each region was taken.
    takers: FxHashMap<Address, u32>,
    live: FxHashMap<Address, HeldBlock>,
    pending: VecDeque<PendingBlock<E>>,
    /// Given back during a capture: their events are recorded after it.
    deferred: Vec<(Address, Vec<User>)>,
    counters: PinnedCounters,
}

impl<E> Books<E> {
    /// Hands out what fits well; or however badly.
    fn claim(&mut self, size: u64, anywhere: bool) -> Option<Address> {
        let address = if anywhere { self.regions.serve_anywhere(size) } else { self.regions.serve(size) }?;
        self.counters.blocks.add(1);
        self.counters.bytes.add(size.max(1).next_multiple_of(UNIT));
        self.counters.requested.add(size);
        self.live.insert(address, HeldBlock { requested: size, users: Vec::new() });
        Some(address)
    }

    /// A region is there for requests like one of `size` bytes, taken by the driver of a GPU; false if it cannot be counted.
    fn add(&mut self, (address, bytes): (Address, u64), taker: u32, size: u64) -> bool {
        let is_added = self.regions.add(address, bytes, size);
        if is_added {
            self.takers.insert(address, taker);
            self.counters.regions.add(1);
            self.counters.reserved.add(bytes);
        }
        is_added
    }

    /// Nobody uses a block any more.
    fn release(&mut self, address: Address) {
        if let Some(bytes) = self.regions.free(address) {
            self.counters.blocks.remove(1);
            self.counters.bytes.remove(bytes);
        }
    }
}

/// Pinned memory of a process.
#[derive(Debug)]
pub struct Pinned<D: PageLocked> {
    device: D,
    books: Mutex<Option<Books<D::Event>>>,
    /// GPUs on which a graph is being captured, one bit each.
    capturing: AtomicU64,
    /// Nothing more is served.
    is_off: AtomicBool,
}

impl<D: PageLocked> Pinned<D> {
    /// Nothing was taken yet.
    pub const fn new(device: D) -> Self {
        Pinned { device, books: Mutex::new(None), capturing: AtomicU64::new(0), is_off: AtomicBool::new(false) }
    }

    /// Does something with the books. No driver is called meanwhile.
    fn with<T>(&self, act: impl FnOnce(&mut Books<D::Event>) -> T) -> T {
        let mut books: MutexGuard<'_, _> = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        act(books.get_or_insert_with(|| Books {
            regions: Regions::default(),
            takers: FxHashMap::default(),
            live: FxHashMap::default(),
            pending: VecDeque::new(),
            deferred: Vec::new(),
            counters: PinnedCounters::default(),
        }))
    }

    fn is_capturing(&self) -> bool {
        self.capturing.load(Ordering::SeqCst) != 0
    }

    /// Serves nothing more. Takes no lock.
    pub fn retire(&self) {
        self.is_off.store(true, Ordering::SeqCst);
    }

    /// Serves so many bytes; new memory is taken with the driver of a GPU. `None`: it is PyTorch's. While a graph is captured nothing
    /// is served: what a graph uses must stay its own.
    pub fn serve(&self, device: u32, size: u64) -> Option<Address> {
        if self.is_off.load(Ordering::SeqCst) || self.is_capturing() {
            return None;
        }
        self.poll(false);
        if let Some(address) = self.with(|books| books.claim(size, false)) {
            return Some(address);
        }
        self.poll(true);
        self.with(|books| books.claim(size, false)).or_else(|| self.grow(device, size))
    }

    /// Takes a region for a request, in place of idle ones that it does not fit in. If the host has not so much, one for the request
    /// alone; if it has not that either, the request goes where it fits badly, or idle regions are given back first.
    #[cold]
    fn grow(&self, device: u32, size: u64) -> Option<Address> {
        let (idle, wanted) = self.with(|books| books.regions.grow_for(size))?;
        self.give_back(idle);
        let least = size.max(1).checked_next_multiple_of(UNIT)?;
        let mut taken = self.take(device, wanted);
        if taken.is_err() && wanted > least {
            taken = self.take(device, least);
        }
        if taken.is_err() {
            if let Some(address) = self.with(|books| books.claim(size, true)) {
                return Some(address);
            }
            if self.trim() > 0 {
                taken = self.take(device, least);
            }
        }
        let taken = match taken {
            Ok(taken) => taken,
            Err(error) => {
                // A driver without the call will not have it later.
                if matches!(error, Error::Unsupported(_)) {
                    self.retire();
                }
                return None;
            }
        };
        // In the same turn: nobody else can have it.
        let served = self.with(|books| if books.add(taken, device, size) { books.claim(size, true) } else { None });
        if served.is_none() {
            self.retire();
        }
        served
    }

    fn take(&self, device: u32, bytes: u64) -> Result<(Address, u64), Error> {
        let started = Instant::now();
        let address = self.device.alloc(device, bytes)?;
        let took = started.elapsed();
        self.with(|books| books.counters.taking.add(took));
        Ok((address, bytes))
    }

    /// A stream of a GPU was given work on the block that an address lies in; false if that is no block.
    pub fn record(&self, inside: Address, user: User) -> bool {
        self.with(|books| {
            let Some(block) = books.regions.around(inside) else { return false };
            let Some(live) = books.live.get_mut(&block.start) else { return false };
            if !live.users.contains(&user) {
                live.users.push(user);
            }
            true
        })
    }

    /// Takes a block back; false if none begins there.
    pub fn free(&self, address: Address) -> bool {
        let freed = self.with(|books| {
            let HeldBlock { requested, users } = books.live.remove(&address)?;
            books.counters.requested.remove(requested);
            if users.is_empty() {
                books.release(address);
            } else if self.is_capturing() {
                books.deferred.push((address, users));
                return Some(Vec::new());
            }
            Some(users)
        });
        let Some(users) = freed else { return false };
        if !users.is_empty() {
            self.wait_for(address, &users);
        }
        true
    }

    /// A block is free once these streams are done. If one cannot be asked, never: memory is lost, correctness is not.
    fn wait_for(&self, address: Address, users: &[User]) {
        let record = |&(device, stream): &User| self.device.record(device, stream);
        if let Ok(events) = users.iter().map(record).collect() {
            self.with(|books| books.pending.push_back(PendingBlock { address, events }));
        }
    }

    /// Frees blocks that streams are done with: the first ones, or all of them.
    fn poll(&self, all: bool) {
        if self.is_capturing() {
            return;
        }
        for _ in 0..self.with(|books| books.pending.len()) {
            let Some(mut pending) = self.with(|books| books.pending.pop_front()) else { return };
            let mut is_lost = false;
            while let Some(event) = pending.events.last() {
                match self.device.completed(event) {
                    Ok(true) => drop(pending.events.pop()),
                    Ok(false) => break,
                    Err(_) => {
                        is_lost = true;
                        break;
                    }
                }
            }
            let is_done = pending.events.is_empty();
            self.with(|books| match (is_done, all) {
                _ if is_lost => {}
                (true, _) => books.release(pending.address),
                (false, true) => books.pending.push_back(pending),
                (false, false) => books.pending.push_front(pending),
            });
            if !is_done && !is_lost && !all {
                return;
            }
        }
    }

    /// A graph is being captured on a GPU, or no longer.
    pub fn set_capturing(&self, device: u32, capturing: bool) {
        let bit = 1 << (device % u64::BITS);
        if capturing {
            self.capturing.fetch_or(bit, Ordering::SeqCst);
        } else if self.capturing.fetch_and(!bit, Ordering::SeqCst) == bit {
            for (address, users) in self.with(|books| std::mem::take(&mut books.deferred)) {
                self.wait_for(address, &users);
            }
        }
    }

    /// Gives regions without a block back to the host; their bytes.
    pub fn trim(&self) -> u64 {
        self.poll(true);
        self.give_back(self.with(|books| books.regions.take_idle()))
    }

    /// Gives regions that are on the books no more back to the host; their bytes.
    fn give_back(&self, idle: Vec<(Address, u64)>) -> u64 {
        for &(address, bytes) in &idle {
            let taker = self.with(|books| books.takers.remove(&address)).unwrap_or(0);
            let started = Instant::now();
            // A driver that refuses keeps the memory; there is nobody to tell.
            let _ = self.device.free(taker, address);
            let took = started.elapsed();
            self.with(|books| {
                books.counters.regions.remove(1);
                books.counters.reserved.remove(bytes);
                books.counters.giving_back.add(took);
            });
        }
        idle.iter().map(|&(_, bytes)| bytes).sum()
    }

    /// What is counted; then peaks and totals begin again, those that are to.
    pub fn counters(&self, peaks: bool, totals: bool) -> PinnedCounters {
        self.with(|books| {
            let read = books.counters;
            if peaks {
                books.counters.counters().into_iter().for_each(Counter::restart_peak);
                books.counters.taking.restart_extremes();
                books.counters.giving_back.restart_extremes();
            }
            if totals {
                books.counters.counters().into_iter().for_each(Counter::restart_totals);
                books.counters.taking.restart_totals();
                books.counters.giving_back.restart_totals();
            }
            read
        })
    }
}

/// The process's.
static PINNED: Pinned<HostMemory> = Pinned::new(HostMemory::new());

/// The host among streams, to which blocks are handed out, where the order of all use of memory is checked.
const HOST: Stream = u64::MAX;

/// See [`Pinned::serve`].
pub fn serve(device: i32, size: u64) -> Option<Address> {
    if fork::is_child() {
        return None;
    }
    fork::in_use();
    let address = PINNED.serve(u32::try_from(device).ok()?, size)?;
    order::handed_out(0, address, size.max(1).next_multiple_of(UNIT), HOST);
    Some(address)
}

/// See [`Pinned::free`]. In a forked child blocks are its parent's.
pub fn free(address: Address) -> bool {
    if fork::is_child() {
        return true;
    }
    order::given_back(0, address);
    PINNED.free(address)
}

/// See [`Pinned::record`].
pub fn record(inside: Address, device: i32, stream: Stream) -> bool {
    let Ok(gpu) = u32::try_from(device) else { return false };
    let is_ours = !fork::is_child() && PINNED.record(inside, (gpu, stream));
    if is_ours {
        order::used_on(device, inside, stream);
    }
    is_ours
}

/// See [`Pinned::set_capturing`].
pub fn set_capturing(device: i32, capturing: bool) {
    if let (Ok(device), false) = (u32::try_from(device), fork::is_child()) {
        PINNED.set_capturing(device, capturing);
    }
}

/// See [`Pinned::trim`].
pub fn trim() -> u64 {
    if fork::is_child() { 0 } else { PINNED.trim() }
}

/// What is counted; then peaks and totals begin again, those that are to.
pub fn counters(peaks: bool, totals: bool) -> PinnedCounters {
    if fork::is_child() { PinnedCounters::default() } else { PINNED.counters(peaks, totals) }
}

/// See [`Pinned::retire`].
pub fn retire() {
    PINNED.retire();
}

#[cfg(test)]
mod tests;
