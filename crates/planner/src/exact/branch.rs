//! Where a node of the exact search branches, and into what: which runs are valleys, how many children each has from
//! either side, and in what order they are tried.

use super::style::Taste;
use super::terrain::{LevelRun, SearchedStretch, Valley};
use super::{Child, Exact, NONE};
use crate::hash::mix;

/// How much more what is lost next to a child counts than what it takes. Of dives towards 1.055 times the bound of
/// minimalloc_J succeed 6 of 131 with 2, 15 with 8, 33 with 32, and 25 with 256 and more; on rectangles cut into 300 to
/// 5,000 pieces with 5 and 15 % missing, 256 and more are as good as 32 or better.
const LOST: u128 = 128;

impl Exact<'_> {
    /// Calls a function with each waiting item that lives within some sections; how many were looked at.
    pub(super) fn each_within(&self, first: u32, length: u32, mut each: impl FnMut(u32)) -> u64 {
        let n = self.part.items.len() as u32;
        let flat = length == self.around;
        let mut looked = 0;
        let end = first + length;
        for (from, to) in [(first, end.min(self.around)), (0, end.saturating_sub(self.around))] {
            let mut i = if from < to { self.waiting.from(from) } else { n };
            while i < n && self.part.items[i as usize].lower < to {
                looked += 1;
                let item = &self.part.items[i as usize];
                if flat || self.terrain.from(first, item.lower) + item.length() <= length {
                    each(i);
                }
                i = self.waiting.after(i);
            }
        }
        looked
    }

    /// Finds out which of the runs that changed are valleys, and counts their children.
    pub(super) fn survey(&mut self, here: &SearchedStretch) {
        for k in 0..self.changed.len() {
            let LevelRun { at, length, height: floor } = self.changed[k];
            let Some((left, right)) = self.terrain.walls(here, at) else { continue };
            let mut valley = Valley { at, length, floor, left, right, most: 0, count: [0; 2] };
            self.prepare_valley(&valley);
            valley.most = self.most_left[self.terrain.wrap(at + length - 1) as usize];
            let raise = u32::from(self.may_rise(&valley));
            let mut count = [raise; 2];
            let looked = self.each_within(at, length, |i| {
                if self.is_candidate(&valley, i) {
                    count[0] += u32::from(self.fits(&valley, 0, i));
                    count[1] += u32::from(self.fits(&valley, 1, i));
                }
            });
            self.work += looked + u64::from(length);
            valley.count = count;
            self.terrain.note(&valley);
        }
    }

    /// Finds the largest loads from either end of a valley.
    pub(super) fn prepare_valley(&mut self, valley: &Valley) {
        let mut most = 0;
        for k in 0..valley.length {
            let s = self.terrain.wrap(valley.at + k) as usize;
            most = most.max(self.load[s]);
            self.most_left[s] = most;
        }
        most = 0;
        for k in (0..valley.length).rev() {
            let s = self.terrain.wrap(valley.at + k) as usize;
            most = most.max(self.load[s]);
            self.most_right[s] = most;
        }
    }

    /// The valley and side with the fewest children, and whether it has any; and the name of the state: the items
    /// waiting and the skyline.
    pub(super) fn choose(&mut self, here: &SearchedStretch) -> (Valley, usize, bool, u128) {
        let mut best = (u32::MAX, u64::MAX, 0, 0);
        let mut key = here.items;
        let (mut seen, mut at) = (0, here.first);
        while seen < here.length {
            let run = self.terrain.run(at);
            let low = mix(run.height ^ mix(u64::from(at)));
            key ^= u128::from(mix(low ^ 0x9e37_79b9_7f4a_7c15)) << 64 | u128::from(low);
            if let Some(valley) = self.terrain.valley(at) {
                for (side, &count) in valley.count.iter().enumerate() {
                    // Leftmost from the stretch's start, whichever section that is.
                    best = best.min((self.style.choice.class(count), valley.floor, seen, side));
                }
            }
            seen += run.length;
            at = self.terrain.wrap(at + run.length);
            self.work += 1;
        }
        let (class, _, position, side) = best;
        // The lowest run of a stretch is a valley.
        let valley = self.terrain.valley(self.terrain.wrap(here.first + position)).unwrap_or_default();
        (valley, side, class > 0 && valley.length > 0, key.max(1))
    }

    /// Whether nothing need rest on the floor of the valley that was prepared.
    fn may_rise(&self, valley: &Valley) -> bool {
        let height = valley.left.min(valley.right);
        // Over a ring that is all level nothing but a wall may be rested on.
        height < u64::MAX && height.saturating_add(valley.most) <= self.limit
    }

    pub(super) fn list_children(&mut self, valley: &Valley, side: usize) {
        let mut children = std::mem::take(&mut self.children);
        let from = children.len();
        let looked = self.each_within(valley.at, valley.length, |i| {
            if self.is_candidate(valley, i) && self.fits(valley, side, i) {
                children.push(Child { item: i, score: 0 });
            }
        });
        for child in &mut children[from..] {
            child.score = self.score(valley, side, child.item);
        }
        if self.may_rise(valley) {
            children.push(Child { item: NONE, score: 0 });
        }
        self.children = children;
        self.work += looked;
    }

    /// Whether an item that lives within a valley may rest on its floor, as far as it alone is concerned: of items
    /// alike in all the first is placed first, and nothing may be lost below an aligned one.
    fn is_candidate(&self, valley: &Valley, i: u32) -> bool {
        let twin = self.twin[i as usize];
        if twin != NONE && !self.waiting.is_gone(twin) {
            return false;
        }
        let item = &self.part.items[i as usize];
        item.align == 1 || {
            let offset = self.rest(valley, i);
            let load = |s| self.load[self.terrain.wrap(s) as usize];
            (item.lower..item.upper).all(|s| offset.saturating_add(load(s)) <= self.limit)
        }
    }

    /// Whether an item may be the outermost that rests on a valley's floor, seen from a side.
    fn fits(&self, valley: &Valley, side: usize, i: u32) -> bool {
        let item = &self.part.items[i as usize];
        let top = self.rest(valley, i).saturating_add(item.size);
        if top > self.limit {
            return false;
        }
        if valley.length == self.around {
            return true;
        }
        let before = self.terrain.from(valley.at, item.lower);
        if side == 0 {
            if before == 0 {
                return true;
            }
            let s = self.terrain.wrap(valley.at + before - 1) as usize;
            return valley.left.min(top).saturating_add(self.most_left[s]) <= self.limit;
        }
        let after = before + item.length();
        let s = self.terrain.wrap(valley.at + after) as usize;
        after == valley.length || valley.right.min(top).saturating_add(self.most_right[s]) <= self.limit
    }

    /// Where an item lies that rests on a valley's floor.
    pub(super) fn rest(&self, valley: &Valley, i: u32) -> u64 {
        let align = self.part.items[i as usize].align;
        if align == 1 { valley.floor } else { valley.floor.checked_next_multiple_of(align).unwrap_or(u64::MAX) }
    }

    fn score(&mut self, valley: &Valley, side: usize, i: u32) -> u64 {
        let item = &self.part.items[i as usize];
        let (length, size) = (u64::from(item.length()), item.size);
        let value = match self.style.taste {
            Taste::Length => length << 32 | size.min(u64::from(u32::MAX)),
            Taste::Area => length.saturating_mul(size),
            Taste::Size => size,
            Taste::Any => 1 << 30,
        };
        let value = if self.style.fit { self.fitted(valley, side, i, value) } else { value };
        if self.style.noise == 0 {
            return value.saturating_add(1);
        }
        let factor = 16 + self.rng.next() % (self.style.noise + 1);
        (value / 16).saturating_mul(factor).saturating_add(1)
    }

    /// A child's value, less where it leaves something empty next to it, more where it is level with the wall there.
    fn fitted(&self, valley: &Valley, side: usize, i: u32, value: u64) -> u64 {
        if valley.length == self.around {
            return value;
        }
        let item = &self.part.items[i as usize];
        let top = self.rest(valley, i) + item.size;
        let before = self.terrain.from(valley.at, item.lower);
        let (gap, wall) =
            if side == 0 { (before, valley.left) } else { (valley.length - before - item.length(), valley.right) };
        if gap == 0 {
            return if top == wall { value.saturating_mul(2) } else { value };
        }
        let lost = u128::from(gap) * u128::from(wall.min(top) - valley.floor);
        let area = u128::from(item.length()) * u128::from(item.size);
        let share = area / 16 * 1024 / (area / 16 + lost * LOST / 16 + 1);
        (u128::from(value) * share / 1024) as u64
    }
}
