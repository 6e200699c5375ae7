//! Addresses for requests that have none of their own: where they fit best.

use std::ops::Range;

use stalloc_gaps::{Fits, Gaps};

use super::Place;
use crate::frames::Frames;
use crate::script::{GRANULE, Key};
use crate::streams::{Owners, bit};
use crate::tuning::{medium, search_limit};

impl Place {
    /// Where a request fits best; only where no other stream was last, unless `allow_others`.
    pub fn tightest(&mut self, owners: &mut Owners, window: Range<u32>, key: Key, allow_others: bool) -> Option<u32> {
        if window.start < self.script.granules {
            self.update_gaps();
        }
        if window.end.saturating_sub(window.start) < key.granules() {
            return None;
        }
        let width = key.granules();
        // Those of others alone last: most of them are in use still.
        let may_hide = !allow_others && !owners.is_alone(key.stream());
        let own = if may_hide { own_gap(&self.gaps, &window, owners, key) } else { None };
        own.or_else(|| first(self.gaps.fits(window.clone(), width), owners, key, allow_others)).or_else(|| {
            // Other streams' gaps may hide where nobody has been yet.
            let region = self.regions[1..3].iter().filter(|&&start| window.start >= start && start > 0).count();
            let untouched = self.untouched[region.min(2)].max(window.start);
            (!allow_others && window.end.min(self.regions[region.min(2) + 1]).saturating_sub(untouched) >= width)
                .then_some(untouched)
        })
    }

    /// Where a request fits on memory that is mapped: the tightest, or the lowest that is mapped; only where no other stream was last,
    /// unless `allow_others`.
    #[inline]
    pub fn on_mapped(
        &mut self,
        frames: &Frames,
        owners: &mut Owners,
        window: &Range<u32>,
        key: Key,
        allow_others: bool,
    ) -> Option<u32> {
        let tightest = self.tightest(owners, window.clone(), key, allow_others);
        let start = tightest.filter(|&start| frames.is_backed(&(start..start + key.granules())));
        start.or_else(|| self.lowest_mapped(frames, owners, window.clone(), key, allow_others))
    }

    /// O(gaps) if there is no place below the first hole in what is mapped.
    #[cold]
    fn lowest_mapped(
        &mut self,
        frames: &Frames,
        owners: &mut Owners,
        window: Range<u32>,
        key: Key,
        allow_others: bool,
    ) -> Option<u32> {
        let mapped_until = frames.backed_until().clamp(window.start, window.end);
        if let Some(start) = self.tightest(owners, window.start..mapped_until, key, allow_others) {
            return Some(start);
        }
        let within = |gap: Range<u32>| gap.start.max(window.start)..gap.end.min(window.end);
        let wide = self.gaps.of_width(key.granules());
        let gaps = wide.filter(|gap| gap.end > mapped_until && gap.start < window.end).map(within);
        let mut parts =
            gaps.flat_map(|gap| frames.mapped_parts(gap)).filter(|part| part.end - part.start >= key.granules());
        if allow_others {
            return parts.next().map(|part| part.start);
        }
        parts.find_map(|part| own_part(owners, part, key))
    }

    /// Where a request fits so that the fewest pages have to be remapped for it, of equals in the tightest gap; only where no other
    /// stream was last, unless `allow_others`. O(gaps that are wide enough, and their frames).
    #[cold]
    pub fn cheapest(
        &self,
        frames: &Frames,
        owners: &mut Owners,
        window: Range<u32>,
        key: Key,
        allow_others: bool,
    ) -> Option<u32> {
        let width = key.granules();
        let mut best: Option<(u64, u32)> = None;
        for gap in self.gaps.fits(window, width).take(search_limit() as usize) {
            let last = gap.end - width;
            let parts = frames.mapped_parts(gap.clone());
            let starts =
                parts.flat_map(|part| [part.start.min(last), part.end.saturating_sub(width).clamp(gap.start, last)]);
            for start in starts.chain([gap.start]) {
                let missing = frames.missing(&(start..start + width));
                let is_better = best.is_none_or(|(least, _)| missing < least);
                if is_better && (allow_others || own_part(owners, start..start + width, key) == Some(start)) {
                    best = Some((missing, start));
                }
            }
        }
        best.map(|(_, start)| start)
    }
}

/// Where the first of some free ranges begins of which no useless rest is left, or else the first; only where no other stream was
/// last, unless `allow_others`.
fn first(mut fits: Fits<'_>, owners: &mut Owners, key: Key, allow_others: bool) -> Option<u32> {
    let mut wasteful = None;
    for _ in 0..search_limit() {
        let Some(gap) = fits.next() else { break };
        let width = gap.end - gap.start;
        let found = if allow_others { Ok(gap.start) } else { owners.own(gap, key.granules(), key.stream()) };
        match found {
            Ok(start) if is_useless(width - key.granules(), key.granules()) => {
                wasteful.get_or_insert(start);
            }
            Ok(start) => return Some(start),
            Err(users) => fits.narrow(users),
        }
    }
    wasteful
}

/// Whether what a large block would leave of a gap is much of it and yet too little for any other large block: small ones have addresses
/// of their own, so it would be lost for as long as the block lives.
fn is_useless(rest: u32, granules: u32) -> bool {
    let medium = medium() / GRANULE as u32;
    granules > medium && (1..=medium).contains(&rest) && rest > granules / 8
}

/// Where the first gap begins of which the request's stream used a part.
fn own_gap(gaps: &Gaps, window: &Range<u32>, owners: &mut Owners, key: Key) -> Option<u32> {
    first(gaps.fits(window.clone(), key.granules()).used_by(bit(key.stream())), owners, key, false)
}

/// The beginning of the first part of a free range in which a request fits and which no other stream may still use.
fn own_part(owners: &mut Owners, range: Range<u32>, key: Key) -> Option<u32> {
    owners.own(range, key.granules(), key.stream()).ok()
}
