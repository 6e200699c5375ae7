//! Device memory behind the arena's address range.

use std::ops::Range;

use stalloc_device::{Address, Backing, Device, Error};

use crate::script::{GRANULE, Guess, Script};

/// A set of frames, pieces of an address range, by number: a bit each.
#[derive(Clone, Debug, Default)]
pub struct FrameSet {
    words: Vec<u64>,
    len: u64,
}

impl FrameSet {
    /// Adds the frames of `size` bytes that a range of granules touches.
    pub fn insert(&mut self, range: Range<u32>, size: u64) {
        let first = u64::from(range.start) * GRANULE / size;
        let last = (u64::from(range.end) * GRANULE).div_ceil(size);
        for frame in first..last {
            let (word, bit) = ((frame / 64) as usize, 1 << (frame % 64));
            if word >= self.words.len() {
                self.words.resize(word + 1, 0);
            }
            self.len += u64::from(self.words[word] & bit == 0);
            self.words[word] |= bit;
        }
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// How many of them are among others, a bit each.
    fn count_in(&self, others: &[u64]) -> u64 {
        self.words.iter().zip(others).map(|(word, other)| u64::from((word & other).count_ones())).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Script {
    /// The frames of so many bytes that its offsets touch. O(entries + frames touched).
    pub fn frames(&self, size: u64) -> FrameSet {
        let mut frames = FrameSet::default();
        for entry in self.sections.iter().flat_map(|section| &section.entries) {
            if let Guess::Planned(offset) = entry.guess() {
                frames.insert(offset..offset + entry.key.granules(), size);
            }
        }
        frames
    }
}

/// An address range and the device memory behind it.
///
/// With virtual memory management it is reserved whole and mapped in frames as they are first needed; without, it is
/// one allocation. Units are granules of [`GRANULE`] bytes.
///
/// A driver takes as long for a handle of one frame as for one of many, so the handles behind a wide range are large: powers of two
/// of frames, which begin at multiples of their length.
#[derive(Debug)]
pub struct Frames {
    base: Address,
    /// Bytes of the range.
    bytes: u64,
    /// Bytes of addresses behind it that are reserved for others.
    beyond: u64,
    /// Bytes of a frame; `None` if the range is one allocation.
    frame: Option<u64>,
    /// One bit per frame that has no memory.
    unmapped: Vec<u64>,
    mapped: u64,
    /// No frame below this one is unmapped.
    mapped_until: usize,
    /// No frame from this one on is mapped.
    highest: usize,
    /// The handle behind each frame has two to this power of frames.
    orders: Vec<u8>,
}

/// The frames of one handle.
pub(crate) type FrameRange = Range<usize>;

/// The granules of some frames.
fn granules(frames: &Range<usize>, size: u64) -> Range<u32> {
    (frames.start as u64 * size / GRANULE) as u32..(frames.end as u64 * size / GRANULE) as u32
}

impl Frames {
    /// A range for `plan` bytes, and `growth` more where the device can map pages; then `beyond` more, a multiple of a page, for others.
    pub fn new<D: Device>(device: &mut D, plan: u64, growth: u64, beyond: u64) -> Result<Self, Error> {
        let Some(page) = device.page_size() else {
            let plan = plan.max(GRANULE);
            let solid = Frames::solid(device, plan + device.free_addresses().min(growth))?;
            return Ok(Frames { mapped: plan, ..solid });
        };
        // Larger frames would be fewer to map, but each holds memory for as long as anything in it lives: at 8 MiB the
        // smallest device for jobs whose steps vary is up to 2.5 % larger than at 2 MiB.
        let too_large = || Error::Unsupported("reserve more than its address space");
        let bytes = plan.checked_add(growth).and_then(|bytes| bytes.max(1).checked_next_multiple_of(page));
        let bytes = bytes.ok_or_else(too_large)?;
        let base = device.reserve(bytes.checked_add(beyond).ok_or_else(too_large)?)?;
        let count = (bytes / page) as usize;
        let mut unmapped = vec![u64::MAX; count.div_ceil(64)];
        if !count.is_multiple_of(64) {
            unmapped[count / 64] = (1 << (count % 64)) - 1;
        }
        let orders = vec![0; count];
        Ok(Frames { base, bytes, beyond, frame: Some(page), unmapped, mapped: 0, mapped_until: 0, highest: 0, orders })
    }

    /// A range of `bytes` that is one allocation, all of it there from the beginning.
    pub fn solid<D: Device>(device: &mut D, bytes: u64) -> Result<Self, Error> {
        let bytes = bytes.max(1).checked_next_multiple_of(GRANULE);
        let bytes = bytes.ok_or(Error::Unsupported("allocate more than its address space"))?;
        let base = device.alloc(bytes)?;
        let (unmapped, orders) = (Vec::new(), Vec::new());
        Ok(Frames { base, bytes, beyond: 0, frame: None, unmapped, mapped: bytes, mapped_until: 0, highest: 0, orders })
    }

    /// First address of the range.
    pub fn base(&self) -> Address {
        self.base
    }

    /// Bytes of a frame; `None` if the range is one allocation.
    pub fn frame(&self) -> Option<u64> {
        self.frame
    }

    /// Length of the range in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of addresses behind the range that are reserved for others.
    pub fn beyond(&self) -> u64 {
        self.beyond
    }

    /// Device memory behind the range, bytes.
    pub fn mapped(&self) -> u64 {
        self.mapped
    }

    /// Frames that a range of granules touches.
    fn touched(&self, frame: u64, range: &Range<u32>) -> Range<usize> {
        let first = u64::from(range.start) * GRANULE / frame;
        let last = (u64::from(range.end) * GRANULE).div_ceil(frame);
        first as usize..last as usize
    }

    /// Frames of which it covers all.
    fn inner(&self, frame: u64, range: &Range<u32>) -> Range<usize> {
        let first = (u64::from(range.start) * GRANULE).div_ceil(frame);
        let last = u64::from(range.end) * GRANULE / frame;
        first as usize..last.max(first) as usize
    }

    fn is_unmapped(&self, frame: usize) -> bool {
        self.unmapped[frame / 64] >> (frame % 64) & 1 == 1
    }

    /// Whether there is memory behind a whole range of granules.
    #[inline]
    pub fn is_backed(&self, range: &Range<u32>) -> bool {
        let Some(size) = self.frame else { return u64::from(range.end) * GRANULE <= self.mapped };
        let mut frames = self.touched(size, range);
        frames.end <= self.mapped_until || !frames.any(|frame| self.is_unmapped(frame))
    }

    /// Up to this granule there is memory behind everything.
    pub fn backed_until(&self) -> u32 {
        match self.frame {
            Some(size) => (self.mapped_until as u64 * size / GRANULE) as u32,
            None => (self.mapped / GRANULE) as u32,
        }
    }

    /// The parts of a range of granules that have memory behind them. O(frames of the range).
    pub fn mapped_parts(&self, range: Range<u32>) -> impl Iterator<Item = Range<u32>> + '_ {
        let size = self.frame.unwrap_or(self.bytes.max(GRANULE));
        let end = if self.frame.is_some() { self.highest } else { 1 };
        let frames = self.touched(size, &range);
        let (mut at, end) = (frames.start, frames.end.min(end));
        std::iter::from_fn(move || {
            let is_unmapped = |frame| self.frame.is_some() && self.is_unmapped(frame);
            let first =
                if self.frame.is_some() { self.mapped_from(at, end)? } else { Some(at).filter(|&at| at < end)? };
            at = (first..end).find(|&frame| is_unmapped(frame)).unwrap_or(end);
            let found = granules(&(first..at), size);
            Some(found.start.max(range.start)..found.end.min(range.end))
        })
    }

    /// Bytes that are missing behind a range of granules.
    pub fn missing(&self, range: &Range<u32>) -> u64 {
        let Some(size) = self.frame else { return (u64::from(range.end) * GRANULE).saturating_sub(self.mapped) };
        self.touched(size, range).filter(|&frame| self.is_unmapped(frame)).count() as u64 * size
    }

    /// Bytes that are missing behind some frames.
    pub fn missing_of(&self, frames: &FrameSet) -> u64 {
        self.frame.map_or(0, |size| frames.count_in(&self.unmapped) * size)
    }

    /// The frames of a range of granules that have no memory, in pieces for one handle each, of `bytes` at most.
    pub(crate) fn pieces(&self, range: &Range<u32>, bytes: u64) -> Vec<FrameRange> {
        let Some(size) = self.frame else { return Vec::new() };
        let most = (bytes / size).max(1).ilog2();
        let inner = self.inner(size, range);
        let (mut touched, mut pieces) = (self.touched(size, range), Vec::new());
        while let Some(start) = touched.find(|&frame| self.is_unmapped(frame)) {
            let end = touched.find(|&frame| !self.is_unmapped(frame)).unwrap_or(touched.end);
            let mut at = start;
            while at < end {
                let whole = if inner.contains(&at) { end.min(inner.end) - at } else { 1 };
                let order = whole.ilog2().min(at.trailing_zeros()).min(most);
                pieces.push(at..at + (1 << order));
                at += 1 << order;
            }
        }
        pieces
    }

    /// The handle behind a frame that has memory.
    fn handle(&self, frame: usize) -> FrameRange {
        let order = self.orders[frame];
        let start = frame >> order << order;
        start..start + (1 << order)
    }

    /// The addresses of the handles behind a range of granules, in order; none where memory is missing.
    pub fn handles(&self, range: &Range<u32>) -> Vec<Range<Address>> {
        let Some(size) = self.frame.filter(|_| self.is_backed(range)) else { return Vec::new() };
        let mut handles: Vec<FrameRange> = self.touched(size, range).map(|frame| self.handle(frame)).collect();
        handles.dedup();
        handles.into_iter().map(|handle| self.address(handle.start)..self.address(handle.end)).collect()
    }

    /// Handles of several frames behind a range of granules: those that it covers a part of, or all of them. One may come twice.
    pub(crate) fn large(&self, range: &Range<u32>, all: bool) -> impl Iterator<Item = FrameRange> {
        let of = |size| (self.touched(size, range), self.inner(size, range));
        let (touched, inner) = self.frame.map_or((0..0, 0..0), of);
        let step = if all { 1 } else { touched.len().saturating_sub(1).max(1) };
        let of_several = touched.step_by(step).filter(|&frame| self.orders[frame] > 0 && !self.is_unmapped(frame));
        let handles = of_several.map(|frame| self.handle(frame));
        handles.filter(move |handle| all || handle.start < inner.start || handle.end > inner.end)
    }

    /// Handles of `bytes` in all, or a little more, that `is_empty` says nobody uses, by ranges of granules, in each the highest first.
    pub(crate) fn empty_handles(
        &self,
        bytes: u64,
        parts: &[Range<u32>],
        mut is_empty: impl FnMut(Range<u32>) -> bool,
    ) -> Vec<FrameRange> {
        let Some(size) = self.frame else { return Vec::new() };
        let border = |granule: u32| ((u64::from(granule) * GRANULE).div_ceil(size) as usize).min(self.highest);
        let (mut found, mut left) = (Vec::new(), bytes);
        for part in parts.iter().map(|part| border(part.start)..border(part.end)) {
            let mut at = part.end;
            while left > 0
                && let Some(handle) = self.mapped_before(at).map(|frame| self.handle(frame))
                && handle.start >= part.start
            {
                at = handle.start;
                if is_empty(granules(&handle, size)) {
                    left = left.saturating_sub(handle.len() as u64 * size);
                    found.push(handle);
                }
            }
        }
        found
    }

    /// The last frame with memory before another. O(frames between / 64).
    fn mapped_before(&self, frame: usize) -> Option<usize> {
        let mut below = u64::MAX >> (63 - (frame.wrapping_sub(1) % 64));
        for word in (0..frame.div_ceil(64)).rev() {
            let mapped = !self.unmapped[word] & below;
            if mapped != 0 {
                return Some(word * 64 + 63 - mapped.leading_zeros() as usize);
            }
            below = u64::MAX;
        }
        None
    }

    /// The first frame with memory of some, or their end. O(frames between / 64).
    fn mapped_from(&self, from: usize, end: usize) -> Option<usize> {
        let mut from = from;
        while from < end {
            let mapped = !self.unmapped[from / 64] >> (from % 64);
            if mapped != 0 {
                return Some(from + mapped.trailing_zeros() as usize).filter(|&frame| frame < end);
            }
            from = (from / 64 + 1) * 64;
        }
        None
    }

    /// The granules of some frames.
    pub fn granules_of(&self, frames: &Range<usize>) -> Range<u32> {
        granules(frames, self.frame.unwrap_or(0))
    }

    fn address(&self, frame: usize) -> Address {
        self.base + frame as u64 * self.frame.unwrap_or(0)
    }

    /// Puts the memory of a handle behind other frames, as many, which have none. It stays mapped at the first, too: see
    /// [`Self::unmap_old`].
    pub(crate) fn alias<D: Device>(&mut self, device: &mut D, from: &FrameRange, to: &FrameRange) -> Result<(), Error> {
        let Some(size) = self.frame else { return Err(Error::Unsupported("map pages")) };
        device.alias(self.address(from.start), self.address(to.start), to.len() as u64 * size)?;
        self.set_unmapped(from, size);
        self.set_mapped(to, size);
        self.settle();
        Ok(())
    }

    /// Unmaps frames whose memory is behind others by now. Nothing may use their addresses any more.
    pub(crate) fn unmap_old<D: Device>(&mut self, device: &mut D, old: &FrameRange) -> Result<(), Error> {
        let Some(size) = self.frame else { return Ok(()) };
        device.unmap(self.address(old.start), old.len() as u64 * size)
    }

    fn set_mapped(&mut self, handle: &FrameRange, size: u64) {
        for frame in handle.clone() {
            self.unmapped[frame / 64] &= !(1 << (frame % 64));
            self.orders[frame] = handle.len().ilog2() as u8;
        }
        self.mapped += handle.len() as u64 * size;
        self.highest = self.highest.max(handle.end);
    }

    fn set_unmapped(&mut self, handle: &FrameRange, size: u64) {
        handle.clone().for_each(|frame| self.unmapped[frame / 64] |= 1 << (frame % 64));
        self.mapped -= handle.len() as u64 * size;
        self.mapped_until = self.mapped_until.min(handle.start);
    }

    /// Makes `mapped_until` and `highest` true again.
    fn settle(&mut self) {
        let frames = self.frame.map_or(0, |size| (self.bytes / size) as usize);
        while self.mapped_until < frames && !self.is_unmapped(self.mapped_until) {
            self.mapped_until += 1;
        }
        self.highest = self.mapped_before(self.highest).map_or(0, |frame| frame + 1);
    }

    /// Puts memory behind a range of granules wherever there is none, in handles of `bytes` at most. If the device has none left, what
    /// was mapped until then stays.
    pub fn map<D: Device>(&mut self, device: &mut D, range: &Range<u32>, bytes: u64) -> Result<(), Error> {
        let Some(size) = self.frame else {
            // It is there as soon as it is touched.
            self.mapped = self.mapped.max(u64::from(range.end) * GRANULE);
            return Ok(());
        };
        let mut result = Ok(());
        for run in self.pieces(range, bytes).chunk_by(|one, next| one.end == next.start) {
            let backing = |piece: &FrameRange| Backing { bytes: piece.len() as u64 * size, from: None };
            let backings: Vec<_> = run.iter().map(backing).collect();
            let mapped;
            (mapped, result) = device.map_run(self.address(run[0].start), &backings);
            run[..mapped].iter().for_each(|piece| self.set_mapped(piece, size));
            if result.is_err() {
                break;
            }
        }
        self.settle();
        match result {
            // There may be enough for smaller ones.
            Err(Error::OutOfMemory { .. }) if bytes > size => self.map(device, range, size),
            result => result,
        }
    }

    /// Takes handles away, and gives their memory back to the device. Nothing may use their addresses any more. Returns the bytes.
    pub(crate) fn unmap<D: Device>(&mut self, device: &mut D, handles: &[FrameRange]) -> Result<u64, Error> {
        let Some(size) = self.frame else { return Ok(0) };
        let before = self.mapped;
        for handle in handles {
            device.unmap(self.address(handle.start), handle.len() as u64 * size)?;
            self.set_unmapped(handle, size);
        }
        self.settle();
        Ok(before - self.mapped)
    }

    /// Gives everything back to the device, which must be idle.
    pub fn release<D: Device>(&mut self, device: &mut D) -> Result<(), Error> {
        if self.frame.is_none() {
            return device.free(self.base);
        }
        let handles = self.empty_handles(u64::MAX, std::slice::from_ref(&(0..u32::MAX)), |_| true);
        self.unmap(device, &handles)?;
        device.release(self.base, self.bytes + self.beyond)
    }
}

#[cfg(test)]
mod tests;
