//! Sleep: what lives goes to the host, and the device's memory is given back; then all of it comes back to the same addresses.
//!
//! Blocks stay blocks, so views, graphs and optimizers keep what they know of them. Contents go to page-locked memory that is taken once
//! and kept, in the order of addresses, live ranges that lie close together in one copy. Memory is given back only once all contents are
//! on the host, and contents on the host are given up only once all of them are back on the device: wherever the device refuses, what is
//! asleep stays asleep and what is not stays as it is, and a second call goes on.

use std::ops::Range;

use stalloc_device::{Address, Device};

use super::Arena;
use super::pools::Away;
use crate::Error;
use crate::frames::FrameRange;
use crate::script::GRANULE;

/// Free bytes between two live ranges that are copied along: they take as long as a copy of their own does to start, 5 µs.
const GAP: u64 = 256 << 10;

/// Largest copy, bytes: halves of it, the smallest that a wide range is cut into, take as long as hundreds of copies to start.
const LARGEST_COPY: u64 = 64 << 20;

/// What sleeping or waking did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes copied.
    pub bytes: u64,
    /// By so many copies.
    pub copies: u64,
    /// Device memory that was given back, or taken again, bytes.
    pub memory: u64,
    /// Page-locked memory of the host that is kept for this, bytes.
    pub host: u64,
}

/// Contents that are on the host: what of the addresses, and where in the store.
#[derive(Debug)]
struct StoredSpan {
    addresses: Range<Address>,
    at: u64,
}

/// A copy between the device and the host.
#[derive(Debug)]
struct Copy {
    device: Address,
    host: Address,
    bytes: u64,
}

/// What is on the host while its memory is given away.
#[derive(Debug, Default)]
pub(super) struct Sleep {
    /// Page-locked memory of the host: offsets go through all of it, one piece after the other.
    store: Vec<Range<Address>>,
    spans: Vec<StoredSpan>,
    /// Handles that were behind the arena's addresses.
    handles: Vec<FrameRange>,
    pieces: Vec<Away>,
}

impl Sleep {
    #[inline]
    pub fn is_asleep(&self) -> bool {
        !self.handles.is_empty() || !self.pieces.is_empty()
    }

    /// Bytes of the store.
    fn host(&self) -> u64 {
        self.store.iter().map(length).sum()
    }

    /// Bytes of contents that are in it.
    fn used(&self) -> u64 {
        self.spans.last().map_or(0, |span| span.at + length(&span.addresses))
    }

    /// Takes as much memory of the host as is missing for so many bytes in all.
    fn make_room<D: Device>(&mut self, device: &mut D, bytes: u64) -> Result<(), Error> {
        let missing = bytes.saturating_sub(self.host()).next_multiple_of(2 << 20);
        if missing > 0 {
            let address = device.alloc_host(missing)?;
            self.store.push(address..address + missing);
        }
        Ok(())
    }

    /// The copies for contents at some addresses, and in the store from an offset on: of equal length where it is one wide range.
    fn copies_of(&self, addresses: &Range<Address>, at: u64) -> Vec<Copy> {
        let most =
            length(addresses).div_ceil(length(addresses).div_ceil(LARGEST_COPY).max(1)).next_multiple_of(GRANULE);
        let (mut copies, mut device, mut at) = (Vec::new(), addresses.start, at);
        let mut begins = 0;
        for part in &self.store {
            let ends = begins + length(part);
            while device < addresses.end && at < ends {
                let bytes = most.min(addresses.end - device).min(ends - at);
                copies.push(Copy { device, host: part.start + (at - begins), bytes });
                (device, at) = (device + bytes, at + bytes);
            }
            begins = ends;
        }
        copies
    }

    /// Gives the host's memory back, which nothing is copied to or from.
    pub fn release<D: Device>(&mut self, device: &mut D) {
        self.store.drain(..).for_each(|part| drop(device.free_host(part.start)));
    }
}

fn length(range: &Range<Address>) -> u64 {
    range.end - range.start
}

/// The parts of ranges, which are in order, that lie within another.
fn clip(ranges: &[Range<Address>], to: &Range<Address>) -> impl Iterator<Item = Range<Address>> {
    let (first, to) = (ranges.partition_point(|range| range.end <= to.start), to.clone());
    let within = ranges[first..].iter().take_while({
        let end = to.end;
        move |range| range.start < end
    });
    within.map(move |range| range.start.max(to.start)..range.end.min(to.end))
}

/// Whether one of some ranges, which are in order, overlaps another.
fn overlap(ranges: &[Range<Address>], other: &Range<Address>) -> bool {
    clip(ranges, other).next().is_some()
}

/// Ranges that are in order, with those joined that lie close to each other.
fn join(ranges: impl Iterator<Item = Range<Address>>, gap: u64) -> Vec<Range<Address>> {
    let mut joined: Vec<Range<Address>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end + gap => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

impl<D: Device> Arena<D> {
    /// Copies what lives to the host and gives all memory back to the device; what `keep` names stays, with the memory that it lies on,
    /// and of blocks that `discard` names as a whole the contents are not kept. Until it wakes, the arena serves nothing. Blocks may be
    /// given back meanwhile. What is asleep already stays asleep, and what is not goes to sleep, too. Waits for the device.
    ///
    /// # Errors
    /// [`Error::Sleep`] if it cannot sleep now; [`Error::Device`] if host or device refuse. Contents are where they were, or on the host:
    /// [`Self::sleep`] goes on, [`Self::wake`] has them back.
    pub fn sleep(&mut self, keep: &[Range<Address>], discard: &[Range<Address>]) -> Result<Moved, Error> {
        self.can_sleep()?;
        self.order.wait_for_device(&mut self.device)?;
        self.poll();
        self.memory.unmap_all_old(&mut self.device)?;
        if !self.sleep.is_asleep() {
            self.pools.give_back(&mut self.device);
            self.ledger.note_pools(self.pools.reserved());
        }
        let kept = self.blocks_at(keep);
        let handles = self.handles_without(&kept);
        let pieces = self.pools.pieces_without(&kept, &self.sleep.pieces);
        let spans = self.spans(&handles, &pieces, discard);
        let end = spans.last().map_or(0, |span| span.at + length(&span.addresses));
        self.sleep.make_room(&mut self.device, end)?;
        let copies: Vec<Copy> = spans.iter().flat_map(|span| self.sleep.copies_of(&span.addresses, span.at)).collect();
        self.copy(&copies, |copy| (copy.host, copy.device))?;
        let held = self.reserved();
        self.leave(handles, pieces, spans)?;
        Ok(self.moved(&copies, held - self.reserved()))
    }

    /// Whether [`Self::sleep`] is not refused. Asks nothing of the device.
    ///
    /// # Errors
    /// [`Error::Sleep`] says why it is.
    pub fn can_sleep(&self) -> Result<(), Error> {
        if self.is_solid() { Err(Error::Sleep(SOLID.to_owned())) } else { self.check_capturing() }
    }

    /// Takes memory again for all that sleeps and copies its contents back, to the same addresses; first what `first` names. Memory that
    /// no block uses comes back as far as the device has it.
    ///
    /// # Errors
    /// [`Error::Sleep`] while a graph is captured; [`Error::Device`] if the device refuses: then all sleeps on, and it can be called again.
    pub fn wake(&mut self, first: &[Range<Address>]) -> Result<Moved, Error> {
        if !self.sleep.is_asleep() {
            return Ok(Moved { host: self.sleep.host(), ..Moved::default() });
        }
        self.check_capturing()?;
        let (held, live, first) = (self.reserved(), self.in_use(&[]), self.blocks_at(first));
        let handles = std::mem::take(&mut self.sleep.handles);
        let (needed, idle): (Vec<_>, Vec<_>) =
            handles.iter().cloned().partition(|handle| overlap(&live, &self.addresses_of(handle)));
        self.sleep.handles = handles;
        let of_span = |span: &StoredSpan| {
            let parts = join(clip(&live, &span.addresses), GAP);
            let copies = parts.iter().map(|part| (part, span.at + (part.start - span.addresses.start)));
            copies.flat_map(|(part, at)| self.sleep.copies_of(part, at)).collect::<Vec<_>>()
        };
        let mut copies: Vec<Copy> = self.sleep.spans.iter().flat_map(of_span).collect();
        copies.sort_by_key(|copy| (!overlap(&first, &(copy.device..copy.device + copy.bytes)), copy.device));
        let woken = self.map_again(&needed).and_then(|()| self.copy(&copies, |copy| (copy.device, copy.host)));
        if let Err(error) = woken {
            self.leave_again();
            return Err(error);
        }
        // Requests find memory where they found it before. What there is none for is mapped when it is needed.
        let _ = self.map_handles(&idle);
        (self.sleep.handles, self.sleep.pieces, self.sleep.spans) = Default::default();
        self.ledger.note_pools(self.pools.reserved());
        self.memory.look_around(&self.device, &self.ledger);
        Ok(self.moved(&copies, self.reserved() - held))
    }

    /// Bytes of contents that are on the host, or will have memory again; `None` if it is awake.
    pub fn asleep(&self) -> Option<u64> {
        self.sleep.is_asleep().then(|| self.sleep.spans.iter().map(|span| length(&span.addresses)).sum())
    }

    /// Whether an address has no memory now because the arena sleeps.
    pub fn sleeps_at(&self, address: Address) -> bool {
        let granule = ((address.wrapping_sub(self.base())) / GRANULE) as u32;
        let is_backed = || self.memory.frames().is_backed(&(granule..granule + 1));
        self.sleep.is_asleep() && self.is_open(address) && !is_backed()
    }

    fn check_capturing(&self) -> Result<(), Error> {
        if self.order.is_capturing() { Err(Error::Sleep(CAPTURING.to_owned())) } else { Ok(()) }
    }

    fn moved(&self, copies: &[Copy], memory: u64) -> Moved {
        let bytes = copies.iter().map(|copy| copy.bytes).sum();
        Moved { bytes, copies: copies.len() as u64, memory, host: self.sleep.host() }
    }

    /// The blocks that contain the first addresses of ranges, in order.
    fn blocks_at(&self, named: &[Range<Address>]) -> Vec<Range<Address>> {
        let block = |range: &Range<Address>| self.block_around(range.start);
        let mut blocks: Vec<_> =
            named.iter().filter_map(block).map(|block| block.address..block.address + block.size).collect();
        blocks.sort_unstable_by_key(|range| range.start);
        blocks
    }

    /// What is in use, in order: of a pool's memory each part once, at its piece's first address.
    fn in_use(&self, discard: &[Range<Address>]) -> Vec<Range<Address>> {
        let is_discarded = |block: &super::LiveBlock| {
            let covers = |range: &Range<Address>| range.start == block.address && length(range) >= block.requested;
            discard.iter().any(covers)
        };
        let blocks = self.blocks().into_iter().filter(|block| !block.pending && !is_discarded(block));
        let mut live: Vec<_> = blocks.map(|block| block.address..block.address + block.size).collect();
        live.extend(self.pools.taken());
        live
    }

    fn addresses_of(&self, handle: &FrameRange) -> Range<Address> {
        let granules = self.memory.frames().granules_of(handle);
        self.address(granules.start)..self.address(granules.end)
    }

    /// The handles on which no such block lies, in order.
    fn handles_without(&self, kept: &[Range<Address>]) -> Vec<FrameRange> {
        let mut handles = self.memory.frames().empty_handles(u64::MAX, std::slice::from_ref(&(0..u32::MAX)), |_| true);
        handles.retain(|handle| !overlap(kept, &self.addresses_of(handle)));
        handles.reverse();
        handles
    }

    /// What of some memory is to be kept, and where it goes in the store: behind what is there.
    fn spans(&self, handles: &[FrameRange], pieces: &[Away], discard: &[Range<Address>]) -> Vec<StoredSpan> {
        let pools = pieces.iter().map(|piece| self.pools.first_view(piece));
        let memory = join(handles.iter().map(|handle| self.addresses_of(handle)).chain(pools), 0);
        let (live, mut at) = (self.in_use(discard), self.sleep.used());
        let mut spans = Vec::new();
        for addresses in memory.iter().flat_map(|memory| join(clip(&live, memory), GAP)) {
            let bytes = length(&addresses);
            spans.push(StoredSpan { addresses, at });
            at += bytes;
        }
        spans
    }

    /// Copies, from and to where `ends` says. Nothing is under way any more when it returns.
    fn copy(&mut self, copies: &[Copy], ends: fn(&Copy) -> (Address, Address)) -> Result<(), Error> {
        let queued = copies.iter().enumerate().try_for_each(|(lane, copy)| {
            let (to, from) = ends(copy);
            self.device.copy(to, from, copy.bytes, lane)
        });
        let done = self.order.wait_for_device(&mut self.device);
        queued?;
        Ok(done?)
    }

    /// Gives memory back whose contents are on the host, in the order of addresses. Where the device refuses, the rest is awake.
    fn leave(&mut self, handles: Vec<FrameRange>, pieces: Vec<Away>, mut spans: Vec<StoredSpan>) -> Result<(), Error> {
        let (mut result, mut end) = (Ok(()), Address::MAX);
        for handle in handles {
            result = self.memory.unmap(&mut self.device, handle.clone(), &mut self.ledger);
            if result.is_err() {
                end = self.addresses_of(&handle).start;
                break;
            }
            self.sleep.handles.push(handle);
        }
        if result.is_ok() {
            for mut piece in pieces {
                result = self.pools.unmap_piece(&mut self.device, &mut piece);
                let first = self.pools.first_view(&piece).start;
                self.sleep.pieces.retain(|other| !other.is_same(&piece));
                if piece.is_changed() {
                    self.sleep.pieces.push(piece);
                }
                if result.is_err() {
                    end = first;
                    break;
                }
            }
        }
        spans.retain(|span| span.addresses.start < end);
        if let Some(last) = spans.last_mut() {
            last.addresses.end = last.addresses.end.min(end);
        }
        self.sleep.spans.append(&mut spans);
        self.note_held();
        Ok(result?)
    }

    fn map_handles(&mut self, handles: &[FrameRange]) -> Result<(), Error> {
        Ok(self.memory.map_handles(&mut self.device, handles, &mut self.ledger)?)
    }

    fn map_again(&mut self, needed: &[FrameRange]) -> Result<(), Error> {
        self.map_handles(needed)?;
        let mut pieces = self.sleep.pieces.iter_mut();
        Ok(pieces.try_for_each(|piece| self.pools.map_piece(&mut self.device, piece))?)
    }

    /// Gives back what was mapped for contents that are on the host still, as far as the device lets go of it.
    fn leave_again(&mut self) {
        let frames = self.memory.frames();
        let away: Vec<Range<u32>> = self.sleep.handles.iter().map(|handle| frames.granules_of(handle)).collect();
        for handle in frames.empty_handles(u64::MAX, &away, |_| true) {
            let _ = self.memory.unmap(&mut self.device, handle, &mut self.ledger);
        }
        for piece in self.sleep.pieces.iter_mut().filter(|piece| piece.is_on_host) {
            let _ = self.pools.unmap_piece(&mut self.device, piece);
        }
        self.note_held();
    }

    fn note_held(&mut self) {
        self.ledger.note_pools(self.pools.reserved() - self.pools.away(&self.sleep.pieces));
    }
}

const SOLID: &str = "the arena is one allocation (STALLOC_SOLID, or a GPU that cannot map pages), of which nothing can be given back: \
                     it cannot sleep";

const CAPTURING: &str = "a CUDA graph is being captured: sleep and wake before or after the capture";
