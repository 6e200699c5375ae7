//! Which stream used memory last, and which streams come after that use, so that memory passes on only in order.
//!
//! A last use is a stream and a *tick*: how many events had been recorded by then. An event on a stream covers the stream's uses up to
//! its tick. Once it is complete these uses are nobody's; a stream that waits for it comes after all of them. So one event orders
//! every range that its stream had given back, and what is written down is forgotten when the work is done.

use std::ops::Range;

use rustc_hash::FxHashMap;
use stalloc_device::Stream;

use crate::tuning::{epoch, search_limit};

/// The program's streams, counted in the order in which it first allocates on them.
#[derive(Clone, Debug, Default)]
pub struct Streams {
    handles: Vec<Stream>,
    ordinals: FxHashMap<Stream, u16>,
    /// The one asked for last.
    last: u16,
}

impl Streams {
    /// A stream's ordinal; `None` if there are more than 65,535.
    #[inline]
    pub fn ordinal(&mut self, stream: Stream) -> Option<u16> {
        if self.handles.get(usize::from(self.last)) != Some(&stream) {
            self.last = match self.ordinals.get(&stream) {
                Some(&number) => number,
                None => {
                    let number = u16::try_from(self.handles.len()).ok().filter(|&number| number < u16::MAX)?;
                    self.handles.push(stream);
                    self.ordinals.insert(stream, number);
                    number
                }
            };
        }
        Some(self.last)
    }

    /// The handle of an ordinal that was given out.
    pub fn handle(&self, ordinal: u16) -> Stream {
        self.handles[usize::from(ordinal)]
    }
}

/// A stream's use of memory: its tick, and its ordinal in the lowest 16 bits. 0: nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Use(u64);

impl Use {
    const NOBODY: Use = Use(0);

    fn new(stream: u16, tick: u64) -> Self {
        Use(tick << 16 | u64::from(stream))
    }

    fn stream(self) -> u16 {
        self.0 as u16
    }

    fn tick(self) -> u64 {
        self.0 >> 16
    }

    /// Whether both are uses of one stream.
    fn joins(self, other: Use) -> bool {
        self != Use::NOBODY && other != Use::NOBODY && self.stream() == other.stream()
    }
}

/// What a stream is known by among the users of a gap, with others that have the same bit.
pub fn bit(stream: u16) -> u64 {
    1 << (stream % 64)
}

/// Granules whose uses are kept together: 16 MiB.
const USED_PAGE: u32 = 32_768;

/// A part of a piece, in granules from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UsedPart {
    from: u16,
    to: u16,
    used: Use,
}

/// A piece of the address range.
#[derive(Clone, Debug, PartialEq, Eq)]
enum UsedPage {
    /// All of it was used last by one stream, or by nobody.
    Whole(Use),
    /// Parts that were used, in order; neighbours are of different streams.
    Parts(Vec<UsedPart>),
}

impl UsedPage {
    fn parts(&self) -> usize {
        if let UsedPage::Parts(parts) = self { parts.len() } else { 0 }
    }

    /// A part has this last use from now on. Of one stream and neighbours, parts have the later use of both.
    fn set(&mut self, mut from: u16, mut to: u16, used: Use) {
        if (from, to) == (0, USED_PAGE as u16) {
            *self = UsedPage::Whole(used);
            return;
        }
        if let UsedPage::Whole(before) = *self {
            if before == used {
                return;
            }
            if before.joins(used) {
                *self = UsedPage::Whole(used);
                return;
            }
            let all = UsedPart { from: 0, to: USED_PAGE as u16, used: before };
            *self = UsedPage::Parts(if before == Use::NOBODY { Vec::new() } else { vec![all] });
        }
        let UsedPage::Parts(parts) = self else { return };
        let mut first = parts.partition_point(|part| part.to <= from);
        if let Some(part) = parts.get_mut(first)
            && part.from <= from
            && to <= part.to
            && part.used.joins(used)
        {
            part.used = used;
            return;
        }
        let mut end = first + parts[first..].partition_point(|part| part.from < to);
        let mut left = parts.get(first).filter(|part| part.from < from).map(|part| UsedPart { to: from, ..*part });
        let mut right = parts[first..end].last().filter(|part| part.to > to).map(|part| UsedPart { from: to, ..*part });
        if left.is_none() && first > 0 && parts[first - 1].to == from && parts[first - 1].used.joins(used) {
            first -= 1;
            left = Some(parts[first]);
        }
        if right.is_none() && parts.get(end).is_some_and(|part| part.from == to && part.used.joins(used)) {
            right = Some(parts[end]);
            end += 1;
        }
        if let Some(part) = left.take_if(|part| part.used.joins(used)) {
            from = part.from;
        }
        if let Some(part) = right.take_if(|part| part.used.joins(used)) {
            to = part.to;
        }
        let middle = (used != Use::NOBODY).then_some(UsedPart { from, to, used });
        parts.splice(first..end, left.into_iter().chain(middle).chain(right));
        self.settle();
    }

    fn settle(&mut self) {
        let UsedPage::Parts(parts) = self else { return };
        match parts[..] {
            [] => *self = UsedPage::Whole(Use::NOBODY),
            [UsedPart { from: 0, to, used }] if u32::from(to) == USED_PAGE => *self = UsedPage::Whole(used),
            _ => {}
        }
    }
}

/// What is known of a stream.
#[derive(Clone, Debug, Default)]
struct StreamTicks {
    /// Tick of its last use.
    last: u64,
    /// Its uses up to this tick are done.
    done: u64,
    /// By stream: up to which tick it comes after that one's uses.
    after: Vec<u64>,
}

/// Whose the memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemoryOwner {
    Nobody,
    /// Everything was used by this stream alone, or is done: nothing is written down.
    One(u16),
    Several,
}

/// The last user of each part of an address range.
#[derive(Clone, Debug)]
pub struct Owners {
    owner: MemoryOwner,
    /// What lies behind the last one was used by nobody.
    pieces: Vec<UsedPage>,
    lines: Vec<StreamTicks>,
    tick: u64,
    /// Where the epoch began, and the one before.
    began: [u64; 2],
    /// Parts of all pieces, now and when those that are done were dropped last.
    parts: usize,
    swept: usize,
    /// Uses that were noted in this epoch.
    noted: u32,
    /// A search passed over memory of another stream in this epoch.
    passed: bool,
    /// Parts that a search may still look at.
    work: u32,
}

impl Owners {
    /// Nobody has used anything yet.
    pub fn new() -> Self {
        Owners {
            owner: MemoryOwner::Nobody,
            pieces: Vec::new(),
            lines: Vec::new(),
            tick: 1,
            began: [0; 2],
            parts: 0,
            swept: 0,
            noted: 0,
            passed: false,
            work: 0,
        }
    }

    /// Whether no other stream's use is known of: then nothing has to be noted for this one.
    #[inline]
    pub fn is_alone(&self, stream: u16) -> bool {
        self.owner == MemoryOwner::One(stream)
    }

    /// A stream is going to use memory. The answer: the one that was alone until now; all memory that there is was its.
    pub fn admit(&mut self, stream: u16) -> Option<u16> {
        let count = usize::from(stream) + 1;
        if self.lines.len() < count {
            self.lines.resize_with(count, StreamTicks::default);
        }
        match self.owner {
            MemoryOwner::Nobody => self.owner = MemoryOwner::One(stream),
            MemoryOwner::One(one) if one != stream => {
                self.owner = MemoryOwner::Several;
                self.noted = 0;
                self.began = [self.tick; 2];
                return Some(one);
            }
            MemoryOwner::One(_) | MemoryOwner::Several => {}
        }
        None
    }

    /// A stream has used a range until now. The answer: so many were noted in this epoch.
    pub fn note(&mut self, range: Range<u32>, stream: u16) -> u32 {
        if self.owner == MemoryOwner::Several {
            self.lines[usize::from(stream)].last = self.tick;
            self.noted += 1;
            self.set(range, Use::new(stream, self.tick));
        }
        self.noted
    }

    /// What a range had is no more: nobody uses what will be there.
    pub fn forget(&mut self, range: Range<u32>) {
        let end = range.end.min(self.pieces.len() as u32 * USED_PAGE);
        if range.start < end {
            self.set(range.start..end, Use::NOBODY);
        }
    }

    fn set(&mut self, range: Range<u32>, used: Use) {
        if range.is_empty() {
            return;
        }
        let (first, last) = (range.start / USED_PAGE, (range.end - 1) / USED_PAGE);
        if last as usize >= self.pieces.len() {
            self.pieces.resize(last as usize + 1, UsedPage::Whole(Use::NOBODY));
        }
        for number in first..=last {
            let base = number * USED_PAGE;
            let (from, to) = (range.start.saturating_sub(base), (range.end - base).min(USED_PAGE));
            let piece = &mut self.pieces[number as usize];
            let before = piece.parts();
            piece.set(from as u16, to as u16, used);
            self.parts = self.parts + piece.parts() - before;
        }
    }

    /// Nobody's always is, once there is a stream.
    fn is_done(&self, used: Use) -> bool {
        self.lines.get(usize::from(used.stream())).is_some_and(|line| used.tick() <= line.done)
    }

    /// Whether what a stream is given now comes after a use.
    fn is_after(&self, stream: u16, used: Use) -> bool {
        let after = || self.lines.get(usize::from(stream))?.after.get(usize::from(used.stream())).copied();
        used.stream() == stream || self.is_done(used) || after().is_some_and(|tick| used.tick() <= tick)
    }

    /// Whether what a stream is given now comes after another's uses up to a tick.
    pub fn comes_after(&self, stream: u16, other: u16, tick: u64) -> bool {
        self.is_after(stream, Use::new(other, tick))
    }

    /// Calls `visit` with each part of a range that was used and each piece that was not, until it says `true`.
    #[inline(always)]
    fn any(&self, range: &Range<u32>, mut visit: impl FnMut(Use, Range<u32>) -> bool) -> bool {
        let end = range.end.min(self.pieces.len() as u32 * USED_PAGE);
        let mut at = range.start;
        while at < end {
            let (number, base) = (at / USED_PAGE, at / USED_PAGE * USED_PAGE);
            let until = (base + USED_PAGE).min(end);
            match &self.pieces[number as usize] {
                UsedPage::Whole(used) => {
                    if visit(*used, at..until) {
                        return true;
                    }
                }
                UsedPage::Parts(parts) => {
                    let first = parts.partition_point(|part| u32::from(part.to) + base <= at);
                    for part in &parts[first..] {
                        let (from, to) = (base + u32::from(part.from), base + u32::from(part.to));
                        if from >= until {
                            break;
                        }
                        if visit(part.used, from.max(at)..to.min(until)) {
                            return true;
                        }
                    }
                }
            }
            at = until;
        }
        false
    }

    /// A search begins: it passes over memory of which it would have to look at more parts.
    pub fn begin_search(&mut self) {
        self.work = search_limit();
    }

    /// Where so many granules of a range begin that all come before what a stream is given now. If there are none, whose its parts are,
    /// by [`bit`]; all bits, where the search did not look at all of them: it has looked at enough.
    #[inline(always)]
    pub fn own(&mut self, range: Range<u32>, width: u32, stream: u16) -> Result<u32, u64> {
        if self.is_alone(stream) {
            return if range.end.saturating_sub(range.start) >= width { Ok(range.start) } else { Err(u64::MAX) };
        }
        let (mut start, mut work, mut is_found) = (range.start, self.work, false);
        let mut users = 0;
        let is_cut = self.any(&range, |used, part| {
            if part.start.saturating_sub(start) >= width {
                is_found = true;
                return true;
            }
            if used != Use::NOBODY {
                work = work.saturating_sub(1);
                if work == 0 {
                    return true;
                }
            }
            if self.is_after(stream, used) {
                users |= bit(stream);
                is_found = part.end - start >= width;
                return is_found;
            }
            users |= bit(used.stream());
            start = part.end;
            false
        });
        self.passed |= start > range.start;
        self.work = work;
        if is_found || !is_cut && range.end.saturating_sub(start) >= width {
            return Ok(start);
        }
        Err(if is_cut { u64::MAX } else { users })
    }

    /// The streams that a range was used by and that `stream` does not come after, each once, with the tick of its last use there;
    /// with `until_done`, all whose uses are not done. O(parts of the range), each of which is a stream's that gave it back.
    pub fn users(&self, range: &Range<u32>, stream: u16, until_done: bool) -> Vec<(u16, u64)> {
        let mut users: Vec<(u16, u64)> = Vec::new();
        if let MemoryOwner::One(one) = self.owner {
            users.extend((until_done || one != stream).then_some((one, self.tick)));
            return users;
        }
        let mut last = usize::MAX;
        self.any(range, |used, _| {
            if if until_done { self.is_done(used) } else { self.is_after(stream, used) } {
                return false;
            }
            if users.get(last).is_none_or(|(user, _)| *user != used.stream()) {
                let known = users.iter().position(|(user, _)| *user == used.stream());
                last = known.unwrap_or_else(|| {
                    users.push((used.stream(), 0));
                    users.len() - 1
                });
            }
            users[last].1 = users[last].1.max(used.tick());
            false
        });
        users
    }

    /// An event is recorded: its tick. What is noted from now on has a later one.
    pub fn recorded(&mut self) -> u64 {
        self.tick += 1;
        self.tick - 1
    }

    /// A stream waits for another's event of a tick. `now`: it was recorded just now, so that the stream comes after all that the
    /// other comes after, too.
    pub fn waits(&mut self, stream: u16, other: u16, tick: u64, now: bool) {
        let passed_on = if now { self.lines[usize::from(other)].after.clone() } else { Vec::new() };
        let after = &mut self.lines[usize::from(stream)].after;
        after.resize(after.len().max(passed_on.len()).max(usize::from(other) + 1), 0);
        for (ours, theirs) in after.iter_mut().zip(passed_on) {
            *ours = theirs.max(*ours);
        }
        let known = &mut after[usize::from(other)];
        *known = tick.max(*known);
    }

    /// A stream's event of a tick is complete.
    pub fn completed(&mut self, stream: u16, tick: u64) {
        let line = &mut self.lines[usize::from(stream)];
        line.done = tick.max(line.done);
    }

    /// Whether a stream's uses up to a tick are done.
    pub fn is_completed(&self, stream: u16, tick: u64) -> bool {
        self.is_done(Use::new(stream, tick))
    }

    /// The device has done all that it was given: nothing that is free is anybody's.
    pub fn all_completed(&mut self) {
        let tick = self.recorded();
        self.lines.iter_mut().for_each(|line| line.done = tick);
        self.owner = MemoryOwner::Nobody;
        self.pieces.clear();
        (self.parts, self.swept, self.noted) = (0, 0, 0);
    }

    /// An epoch ends. The answer: the streams, with the ticks of their last uses, whose uses are not done and should be known to be,
    /// since a search had to pass over them, or since they are idle and another one might be alone.
    pub fn end_epoch(&mut self) -> Vec<(u16, u64)> {
        if self.owner != MemoryOwner::Several {
            return Vec::new();
        }
        let in_use = self.lines.iter().filter(|line| line.last >= self.began[0]).count();
        let is_wanted = self.passed || in_use < 2;
        self.recorded();
        self.began = [self.tick, self.began[0]];
        self.noted = 0;
        self.passed = false;
        let lines = self.lines.iter().enumerate().filter(|(_, line)| is_wanted && line.last > line.done);
        lines.map(|(stream, line)| (stream as u16, line.last)).collect()
    }

    /// Forgets what is done, where much is written down; and everything, once one stream is alone again.
    pub fn drop_done(&mut self) {
        let used_lately = |line: &StreamTicks| line.last > line.done || line.last >= self.began[1];
        let mut lately = self.lines.iter().enumerate().filter(|(_, line)| used_lately(line));
        let (one, other) = (lately.next(), lately.next());
        if let (MemoryOwner::Several, Some((one, _)), None) = (self.owner, one, other) {
            self.owner = MemoryOwner::One(one as u16);
            self.pieces.clear();
            (self.parts, self.swept) = (0, 0);
        }
        if self.parts < 2 * self.swept + epoch() as usize {
            return;
        }
        let mut pieces = std::mem::take(&mut self.pieces);
        for piece in &mut pieces {
            if let UsedPage::Parts(parts) = piece {
                parts.retain(|part| !self.is_done(part.used));
                piece.settle();
            }
        }
        self.parts = pieces.iter().map(UsedPage::parts).sum();
        (self.pieces, self.swept) = (pieces, self.parts);
    }
}

#[cfg(test)]
mod tests;
