//! Pieces whose memory is given away for a while. Where they are mapped, blocks and free parts stay as they are.

use std::ops::Range;

use stalloc_device::{Address, Device, Error};

use super::Pools;
use crate::script::GRANULE;

/// A piece that is going to sleep, or asleep.
#[derive(Clone, Debug)]
pub(in crate::arena) struct Away {
    piece: u32,
    /// Of its places, the last ones have no memory now: so many. While others have, its contents are there.
    bare: usize,
    /// All of them had none: its contents are on the host.
    pub is_on_host: bool,
}

impl Away {
    /// Whether both are of one piece.
    pub fn is_same(&self, other: &Away) -> bool {
        self.piece == other.piece
    }

    /// Whether a place of it has no memory.
    pub fn is_changed(&self) -> bool {
        self.bare > 0
    }
}

fn bytes(granules: u32) -> u64 {
    u64::from(granules) * GRANULE
}

fn length(range: &Range<Address>) -> u64 {
    range.end - range.start
}

impl<D: Device> Pools<D> {
    /// The pieces on which no such block lies and that are not asleep yet, by their first addresses.
    pub fn pieces_without(&self, kept: &[Range<Address>], asleep: &[Away]) -> Vec<Away> {
        let granule = |address: Address| u32::try_from(address.checked_sub(self.base)? / GRANULE).ok();
        let kept = kept.iter().filter_map(|block| self.parts(&(granule(block.start)?..granule(block.end)?)));
        let mut spared: Vec<u32> = kept.flatten().map(|(piece, _)| piece).collect();
        spared.extend(asleep.iter().filter(|away| self.is_bare(away)).map(|away| away.piece));
        let pieces = self.pieces.keys().filter(|piece| !spared.contains(piece));
        let bare = |piece| asleep.iter().find(|away| away.piece == piece).map_or(0, |away| away.bare);
        let away = |&piece: &u32| Away { piece, bare: bare(piece), is_on_host: false };
        let mut pieces: Vec<Away> = pieces.map(away).collect();
        pieces.sort_unstable_by_key(|piece| self.first_view(piece).start);
        pieces
    }

    fn is_bare(&self, away: &Away) -> bool {
        self.pieces.get(&away.piece).is_none_or(|piece| piece.views.len() == away.bare)
    }

    /// The first addresses of a piece.
    pub fn first_view(&self, away: &Away) -> Range<Address> {
        let Some(piece) = self.pieces.get(&away.piece) else { return 0..0 };
        let start = piece.views.first().map_or(0, |&view| self.place_address(view));
        start..start + bytes(piece.granules)
    }

    /// What blocks take of all pieces, at their first addresses, in order.
    pub fn taken(&self) -> Vec<Range<Address>> {
        let mut taken: Vec<Range<Address>> = Vec::new();
        for piece in self.pieces.values() {
            let first = piece.views.first().map_or(0, |&view| self.place_address(view));
            taken.extend(piece.taken.iter().map(|(&from, &to)| first + bytes(from)..first + bytes(to)));
        }
        taken.sort_unstable_by_key(|range| range.start);
        taken
    }

    /// Bytes of pieces that have no memory.
    pub fn away(&self, pieces: &[Away]) -> u64 {
        pieces.iter().filter(|away| self.is_bare(away)).map(|away| length(&self.first_view(away))).sum()
    }

    /// Takes the memory from behind a piece's places, the first one last.
    pub fn unmap_piece(&mut self, device: &mut D, away: &mut Away) -> Result<(), Error> {
        let Some(piece) = self.pieces.get(&away.piece) else { return Ok(()) };
        while let Some(&view) = piece.views.iter().rev().nth(away.bare) {
            device.unmap(self.place_address(view), bytes(piece.granules))?;
            away.bare += 1;
        }
        away.is_on_host = true;
        Ok(())
    }

    /// Puts memory behind all places of a piece again: new memory if it was given away.
    pub fn map_piece(&mut self, device: &mut D, away: &mut Away) -> Result<(), Error> {
        let Some(piece) = self.pieces.get(&away.piece) else { return Ok(()) };
        let length = bytes(piece.granules);
        for index in piece.views.len() - away.bare..piece.views.len() {
            let to = self.place_address(piece.views[index]);
            match index {
                0 => device.map(to, length)?,
                _ => device.alias(self.place_address(piece.views[0]), to, length)?,
            }
            away.bare -= 1;
        }
        Ok(())
    }
}
