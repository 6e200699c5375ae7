//! Which stream used memory last, so that another one takes it over only behind an event.

use std::collections::BTreeMap;
use std::ops::Range;

use stalloc_device::Stream;

use crate::script::MAX_STREAMS;

/// The program's streams, counted in the order in which it first allocates on them.
#[derive(Clone, Debug, Default)]
pub struct Streams {
    handles: Vec<Stream>,
    /// The one asked for last.
    last: u8,
}

impl Streams {
    /// A stream's ordinal; `None` if there are more than [`MAX_STREAMS`].
    #[inline]
    pub fn ordinal(&mut self, stream: Stream) -> Option<u8> {
        if self.handles.get(usize::from(self.last)) != Some(&stream) {
            let known = self.handles.iter().position(|&handle| handle == stream);
            let number = match known {
                Some(number) => number,
                None if self.handles.len() < MAX_STREAMS => {
                    self.handles.push(stream);
                    self.handles.len() - 1
                }
                None => return None,
            };
            self.last = number as u8;
        }
        Some(self.last)
    }

    /// The handle of an ordinal that was given out.
    pub fn handle(&self, ordinal: u8) -> Stream {
        self.handles[usize::from(ordinal)]
    }
}

/// The last user of each part of an address range: disjoint ranges, neighbours of one stream joined.
///
/// As long as one stream allocates, that one owns everything and nothing is written down.
#[derive(Clone, Debug)]
pub struct Owners {
    len: u32,
    /// Start of a range to its end and stream; covers everything once it is not empty.
    ranges: BTreeMap<u32, (u32, u8)>,
    /// The owner of everything while `ranges` is empty.
    only: Option<u8>,
}

impl Owners {
    /// Nobody has used `0..len` yet.
    pub fn new(len: u32) -> Self {
        Owners { len, ranges: BTreeMap::new(), only: None }
    }

    /// A stream other than `stream` that used a part of the range last, and the end of that part.
    #[inline]
    pub fn foreign(&mut self, range: Range<u32>, stream: u8) -> Option<(u8, u32)> {
        if self.ranges.is_empty() {
            let only = *self.only.get_or_insert(stream);
            if only == stream {
                return None;
            }
            self.ranges.insert(0, (self.len, only));
        }
        let first = self.ranges.range(..=range.start).next_back().map_or(0, |(&start, _)| start);
        let mut parts = self.ranges.range(first..range.end);
        parts.find(|(_, (_, owner))| *owner != stream).map(|(_, &(end, owner))| (owner, end))
    }

    /// The streams that used a range last, some of them more than once.
    pub fn users(&self, range: Range<u32>) -> impl Iterator<Item = u8> {
        let first = self.ranges.range(..=range.start).next_back().map_or(0, |(&start, _)| start);
        let only = if self.ranges.is_empty() { self.only } else { None };
        self.ranges.range(first..range.end).map(|(_, &(_, owner))| owner).chain(only)
    }

    /// `stream` owns the range from now on.
    pub fn take(&mut self, range: Range<u32>, stream: u8) {
        if self.ranges.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // Cut what reaches into the range, join what is the stream's own.
        if let Some((&from, &(to, owner))) = self.ranges.range(..start).next_back()
            && to >= start
        {
            if owner == stream {
                (start, end) = (from, end.max(to));
            } else {
                self.ranges.insert(from, (start, owner));
                if to > end {
                    self.ranges.insert(end, (to, owner));
                }
            }
        }
        while let Some((&from, &(to, owner))) = self.ranges.range(start..=end).next() {
            if owner == stream {
                end = end.max(to);
            } else if from == end {
                break;
            } else if to > end {
                self.ranges.insert(end, (to, owner));
            }
            self.ranges.remove(&from);
        }
        self.ranges.insert(start, (end, stream));
    }
}

#[cfg(test)]
mod tests;
