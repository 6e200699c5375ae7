//! The skyline of an exact search: runs of sections of equal height in a ring, with what is known of each that is a
//! valley, changed in place and undone last change first.
//!
//! Placing an item changes a valley and at most the two runs next to it, so what is known of the others stays true.

/// Sections searched apart from the others: a run of open ones, or the whole ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SearchedStretch {
    /// First section; in a whole ring, where some run begins.
    pub first: u32,
    pub length: u32,
    /// Whether it is the whole ring; otherwise beyond its ends are infinitely high walls.
    pub whole: bool,
    /// The keys of the items waiting there, combined.
    pub items: u128,
}

/// A run of sections of equal height.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LevelRun {
    pub at: u32,
    pub length: u32,
    pub height: u64,
}

/// What is known of a run that is a valley.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Valley {
    pub at: u32,
    pub length: u32,
    pub floor: u64,
    /// The walls.
    pub left: u64,
    pub right: u64,
    /// The largest load waiting at one of its sections.
    pub most: u64,
    /// Children when branching from the left and from the right.
    pub count: [u32; 2],
}

/// What is kept at a section.
#[derive(Clone, Copy, Debug, Default)]
struct Site {
    /// Of the run that begins here.
    length: u32,
    height: u64,
    /// Where the run that ends here begins.
    begin: u32,
    /// Of the run that begins here, if it is a valley.
    valley: Option<(u64, u64, u64, [u32; 2])>,
}

/// The skyline.
pub(crate) struct Terrain {
    around: u32,
    sites: Vec<Site>,
    undo: Vec<(u32, Site)>,
}

impl Terrain {
    /// Of a ring of so many sections. A line is a ring with a section that nothing needs.
    pub fn new(around: u32) -> Terrain {
        Terrain { around, sites: vec![Site::default(); around as usize], undo: Vec::new() }
    }

    /// A section counted on from the first of the ring.
    pub fn wrap(&self, section: u32) -> u32 {
        if section >= self.around { section - self.around } else { section }
    }

    /// How far on a section is from another.
    pub fn from(&self, first: u32, section: u32) -> u32 {
        if section >= first { section - first } else { section + self.around - first }
    }

    /// All at one height.
    pub fn level(&mut self, height: u64) {
        self.undo.clear();
        self.write(LevelRun { at: 0, length: self.around, height });
        self.undo.clear();
    }

    /// How many changes there were.
    pub fn mark(&self) -> usize {
        self.undo.len()
    }

    /// Undoes all changes but so many.
    pub fn revert(&mut self, mark: usize) {
        while self.undo.len() > mark {
            if let Some((s, site)) = self.undo.pop() {
                self.sites[s as usize] = site;
            }
        }
    }

    /// The run that begins at a section.
    pub fn run(&self, at: u32) -> LevelRun {
        let site = &self.sites[at as usize];
        LevelRun { at, length: site.length, height: site.height }
    }

    /// The run that begins at a section as a valley, if it is one.
    pub fn valley(&self, at: u32) -> Option<Valley> {
        let site = &self.sites[at as usize];
        let (left, right, most, count) = site.valley?;
        Some(Valley { at, length: site.length, floor: site.height, left, right, most, count })
    }

    /// Notes that a run is a valley.
    pub fn note(&mut self, v: &Valley) {
        self.change(v.at).valley = Some((v.left, v.right, v.most, v.count));
    }

    fn change(&mut self, section: u32) -> &mut Site {
        let site = &mut self.sites[section as usize];
        self.undo.push((section, *site));
        site
    }

    fn write(&mut self, run: LevelRun) {
        let site = self.change(run.at);
        (site.length, site.height, site.valley) = (run.length, run.height, None);
        let last = self.wrap(run.at + run.length - 1);
        self.change(last).begin = run.at;
    }

    /// The run before one, unless a wall is.
    pub fn before(&self, here: &SearchedStretch, at: u32) -> Option<u32> {
        if !here.whole && at == here.first {
            return None;
        }
        let last = if at == 0 { self.around - 1 } else { at - 1 };
        Some(self.sites[last as usize].begin)
    }

    /// The run after one, unless a wall is.
    pub fn after(&self, here: &SearchedStretch, at: u32) -> Option<u32> {
        let next = self.wrap(at + self.sites[at as usize].length);
        (here.whole || self.from(here.first, at) + self.sites[at as usize].length < here.length).then_some(next)
    }

    /// Whether a run is the whole ring.
    pub fn is_flat(&self, at: u32) -> bool {
        self.sites[at as usize].length == self.around
    }

    /// The walls of a run if both are higher than it.
    pub fn walls(&self, here: &SearchedStretch, at: u32) -> Option<(u64, u64)> {
        if self.is_flat(at) {
            return Some((u64::MAX, u64::MAX));
        }
        let height = |run: Option<u32>| run.map_or(u64::MAX, |run| self.sites[run as usize].height);
        let (left, right) = (height(self.before(here, at)), height(self.after(here, at)));
        let floor = self.sites[at as usize].height;
        (left > floor && right > floor).then_some((left, right))
    }

    /// Replaces the run that begins at `at` (the whole ring, which may begin anywhere, if it is `flat`) by pieces of
    /// the same length together, some maybe empty, joining what is level; the runs that changed or lie next to those,
    /// and the stretch as it is now.
    pub fn replace(
        &mut self,
        here: &SearchedStretch,
        (at, flat): (u32, bool),
        pieces: &[(u32, u64)],
        changed: &mut Vec<LevelRun>,
    ) -> SearchedStretch {
        changed.clear();
        let before = if flat { None } else { self.before(here, at) };
        let after = if flat { None } else { self.after(here, at) };
        changed.extend(before.map(|run| self.run(run)));
        let mut from = at;
        for &(length, height) in pieces.iter().filter(|piece| piece.0 > 0) {
            push(changed, LevelRun { at: from, length, height });
            from = self.wrap(from + length);
        }
        if after != before {
            after.into_iter().for_each(|run| push(changed, self.run(run)));
        }
        // A ring of so few runs that the last is next to the first.
        let closed = flat || (here.whole && after == before);
        if closed
            && changed.len() > 1
            && changed[0].height == changed[changed.len() - 1].height
            && let Some(last) = changed.pop()
        {
            changed[0] = LevelRun { at: last.at, length: last.length + changed[0].length, height: last.height };
        }
        for &run in changed.iter() {
            self.write(run);
        }
        SearchedStretch { first: if here.whole { changed[0].at } else { here.first }, ..*here }
    }

    /// The runs of a stretch, in order.
    pub fn runs(&self, here: &SearchedStretch, runs: &mut Vec<LevelRun>) {
        runs.clear();
        let mut at = here.first;
        let mut seen = 0;
        while seen < here.length {
            let run = self.run(at);
            runs.push(run);
            seen += run.length;
            at = self.wrap(at + run.length);
        }
    }

    /// Makes a stretch of its own of a part of one that had these runs.
    pub fn cut(&mut self, part: &SearchedStretch, runs: &[LevelRun], changed: &mut Vec<LevelRun>) {
        changed.clear();
        for run in runs {
            // The part's first section may lie within the run, and in a ring its last one too.
            let from = self.from(part.first, run.at);
            for (lower, upper) in [(from, from + run.length), (0, (from + run.length).saturating_sub(self.around))] {
                let upper = upper.min(part.length);
                if lower < upper {
                    let at = self.wrap(part.first + lower);
                    changed.push(LevelRun { at, length: upper - lower, height: run.height });
                }
            }
        }
        changed.sort_unstable_by_key(|run| self.from(part.first, run.at));
        // Two pieces of one run may meet where the run began: they are level, and one run.
        changed.dedup_by(|run, before| {
            let level = run.height == before.height;
            before.length += if level { run.length } else { 0 };
            level
        });
        for &run in changed.iter() {
            self.write(run);
        }
    }
}

/// Appends a run, or lengthens the last if it is as high.
fn push(runs: &mut Vec<LevelRun>, run: LevelRun) {
    match runs.last_mut() {
        Some(last) if last.height == run.height => last.length += run.length,
        _ => runs.push(run),
    }
}
