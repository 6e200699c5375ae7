//! Where a request goes: where it fits best among the addresses of its pool, or at new ones.

use std::collections::BTreeMap;

use stalloc_device::{Backing, Device};

use super::Pools;
use super::piece::PoolPiece;
use crate::tuning::search_limit;

/// Most pages of a piece, which goes elsewhere as a whole only. Training on six lengths makes 359 calls of the driver in a capture with
/// single pages, 109 with pieces of up to 8, 95 with up to 32, in no more memory than with up to 8 (`bench/graphs.py`).
const PIECE: u32 = 32;

/// The lengths of the pieces of so many new pages: short ones too, so that what is gathered later can be of any length.
fn lengths(mut pages: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let length = pages.div_ceil(2).min(PIECE);
        pages -= length;
        (length > 0).then_some(length)
    })
}

/// What is put behind new addresses.
#[derive(Clone, Copy, Debug)]
enum Behind {
    /// A piece that there is, by its number.
    Piece(u32),
    /// A new one of so many pages.
    New(u32),
}

impl<D: Device> Pools<D> {
    /// A range of a pool's addresses in which so many granules are free: where they fit best.
    pub(super) fn fit(&mut self, pool: u32, granules: u32) -> Option<u32> {
        let all = 0..self.len * self.granules;
        for tried in 0..search_limit() as usize {
            // Nearly always the first one is taken.
            let start = self.pools.get(&pool)?.gaps.fits(all.clone(), granules).nth(tried)?.start;
            if self.claim(pool, &(start..start + granules)) {
                return Some(start);
            }
        }
        None
    }

    /// Memory for new addresses of so many granules, and how many granules of the first piece are left out. It is made up of pieces on
    /// which no block is; what these do not suffice for goes to the free end of one other piece, to the free beginning of another, or to
    /// both, or it is new, as few pages as possible.
    fn gather(&self, pool: u32, granules: u32) -> (Vec<Behind>, u32) {
        let (mut idle, mut before, mut after) = (Vec::new(), Vec::new(), Vec::new());
        let own = self.pools.get(&pool).filter(|_| !self.maps_once).map_or(&[][..], |pool| &pool.pieces);
        for &number in own {
            let Some(piece) = self.pieces.get(&number) else { continue };
            if piece.taken.is_empty() {
                idle.push((piece.granules, number));
            } else {
                before.push((piece.before(), number));
                after.push((piece.after(), number));
            }
        }
        idle.sort_unstable_by(|one, other| other.cmp(one));
        let (mut memory, mut rest) = (Vec::new(), granules);
        idle.retain(|&(length, number)| {
            let fits = length <= rest;
            if fits {
                memory.push(Behind::Piece(number));
                rest -= length;
            }
            !fits
        });
        let head = after.iter().max().copied().unwrap_or_default();
        let tail = before.iter().filter(|(_, piece)| *piece != head.1).max().copied().unwrap_or_default();
        let new = rest.saturating_sub(head.0 + tail.0).div_ceil(self.granules);
        if let Some(&(_, shortest)) = idle.last().filter(|_| new > 0) {
            // It is longer than what is missing.
            memory.push(Behind::Piece(shortest));
            return (memory, 0);
        }
        memory.extend(lengths(new).map(Behind::New));
        let rest = rest.saturating_sub(new * self.granules);
        let tightest = |list: &[(u32, u32)]| list.iter().filter(|(free, _)| *free >= rest).min().copied();
        let skipped = |piece: u32, used: u32| self.pieces.get(&piece).map_or(0, |piece| piece.granules - used);
        if rest == 0 {
            (memory, 0)
        } else if let Some((_, last)) = tightest(&before) {
            memory.push(Behind::Piece(last));
            (memory, 0)
        } else if let Some((_, first)) = tightest(&after) {
            memory.insert(0, Behind::Piece(first));
            (memory, skipped(first, rest))
        } else {
            memory.insert(0, Behind::Piece(head.1));
            memory.push(Behind::Piece(tail.1));
            (memory, skipped(head.1, head.0))
        }
    }

    /// New addresses for so many granules, with memory behind them: where they begin.
    pub(super) fn widen(&mut self, device: &mut D, pool: u32, granules: u32) -> Option<u32> {
        let (mut memory, mut skipped) = self.gather(pool, granules);
        let mut mapped = self.view(device, pool, &memory);
        if mapped.is_none() && self.maps_once && memory.iter().any(|memory| matches!(memory, Behind::Piece(_))) {
            (memory, skipped) = self.gather(pool, granules);
            mapped = self.view(device, pool, &memory);
        }
        let start = mapped? * self.granules + skipped;
        self.claim(pool, &(start..start + granules)).then_some(start)
    }

    /// Puts pieces, old and new, behind new places: the first of them.
    fn view(&mut self, device: &mut D, pool: u32, memory: &[Behind]) -> Option<u32> {
        let length = |memory: &Behind| match memory {
            Behind::Piece(number) => self.pieces.get(number).map_or(0, |piece| piece.granules / self.granules),
            Behind::New(pages) => *pages,
        };
        let lengths: Vec<u32> = memory.iter().map(length).collect();
        let count = lengths.iter().sum::<u32>() + 1;
        let first = self.places.fits(0..self.len, count).next()?.start;
        let backing = |(memory, &pages): (&Behind, &u32)| {
            let piece = if let Behind::Piece(number) = memory { self.pieces.get(number) } else { None };
            let view = piece.and_then(|piece| piece.views.first());
            Backing { bytes: u64::from(pages) * self.page_bytes(), from: view.map(|&view| self.place_address(view)) }
        };
        let backings: Vec<Backing> = memory.iter().zip(&lengths).map(backing).collect();
        let to = self.place_address(first);
        let (mapped, result) = device.map_run(to, &backings);
        if let Err(error) = result {
            self.maps_once |= matches!(error, stalloc_device::Error::Unsupported(_));
            // Nobody has had them yet.
            let _ = device.unmap(to, backings[..mapped].iter().map(|backing| backing.bytes).sum());
            return None;
        }
        self.places.take(first..first + count);
        self.ends.insert(first + count - 2);
        let pool = self.pools.get_mut(&pool)?;
        let mut place = first;
        for (memory, pages) in memory.iter().zip(lengths) {
            let number = if let Behind::Piece(number) = memory { *number } else { self.next_piece };
            if let Behind::New(_) = memory {
                let granules = pages * self.granules;
                self.next_piece += 1;
                self.held += u64::from(granules);
                self.pieces.insert(number, PoolPiece { granules, views: Vec::new(), taken: BTreeMap::new() });
                pool.pieces.push(number);
            }
            self.behind.extend((place..place + pages).map(|each| (each, (number, place))));
            let Some(piece) = self.pieces.get_mut(&number) else { continue };
            piece.views.push(place);
            for part in piece.free_parts() {
                let start = place * self.granules;
                pool.gaps.give(start + part.start..start + part.end);
            }
            place += pages;
        }
        Some(first)
    }
}

#[cfg(test)]
mod tests;
