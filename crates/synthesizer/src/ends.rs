//! How long the requests of each entry live, whatever the step.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::draft::{Draft, DraftRequest};
use crate::learner::LaterEnd;
use crate::tuning::{max_copies, max_passed, small_kept};

/// When an entry's memory is free again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// In its own step, on that step's clock.
    Own(u32),
    /// In a later step.
    Later(Vec<StepRelease>),
    /// Never.
    Never,
    /// Nothing bounds it: it gets no offset.
    Open,
}

/// A place in a later step where an entry is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StepRelease {
    /// The kind that releases it.
    pub kind: usize,
    /// How many turns later; only for entries of which several live at once.
    pub turns: Option<u32>,
    /// When, on that kind's clock.
    pub at: u32,
}

/// The ends of all entries.
pub(crate) struct Ends {
    /// For each kind, for each of its entries.
    pub of: Vec<Vec<End>>,
    /// How many copies of each repeating kind the plan needs.
    pub copies: u32,
    /// For each kind, whether it takes turns: after a step of it, the next copies come.
    pub turning: Vec<bool>,
    /// Requests that have lived longer than their entry's do, by step and entry: no offset is theirs.
    pub odd: FxHashSet<(u32, u32)>,
    /// What lives now and is not released by the steps.
    pub staying: Vec<DraftRequest>,
}

impl Draft {
    /// What lives now and no step frees, by what the caller calls it: what [`Draft::plan`] leaves where it is.
    pub fn staying(&self) -> impl Iterator<Item = u64> {
        find(self).staying.into_iter().map(|live| live.id)
    }
}

/// Looks at every entry. O(entries + live requests).
pub(crate) fn find(draft: &Draft) -> Ends {
    let entries = |kind: usize| draft.kinds[kind].known.keys.len();
    let mut alive: Vec<FxHashMap<u32, u32>> = Vec::with_capacity(draft.kinds.len());
    let mut of: Vec<Vec<End>> = Vec::with_capacity(draft.kinds.len());
    for (kind, drafted) in draft.kinds.iter().enumerate() {
        let known = &drafted.known;
        let mut ends: Vec<End> = known.own.iter().map(|&at| if at > 0 { End::Own(at) } else { End::Never }).collect();
        let mut likes = FxHashMap::default();
        for (&entry, later) in &known.later {
            let number = later.ends.iter().map(|end| likes_made(kind, entry, end)).max().unwrap_or(0);
            let unbounded = later.long || number >= max_copies();
            likes.insert(entry, number);
            ends[entry as usize] = if !unbounded { End::Later(Vec::new()) } else { End::Never };
        }
        if draft.repeats(kind) {
            ends.iter_mut().filter(|end| **end == End::Never).for_each(|end| *end = End::Open);
        }
        of.push(ends);
        alive.push(likes);
    }
    // Where one request outlives its likes it is odd; where several do, nothing bounds them.
    let mut odd: FxHashMap<(usize, u32), Vec<&DraftRequest>> = FxHashMap::default();
    for live in &draft.live {
        if let Some((kind, entry)) = live.made.filter(|&(kind, _)| draft.repeats(kind))
            && outlives(draft, live, &of, &alive)
        {
            odd.entry((kind, entry)).or_default().push(live);
        }
    }
    for (&(kind, entry), _) in odd.iter().filter(|(_, lives)| lives.len() > 1) {
        of[kind][entry as usize] = End::Open;
    }
    let odd = odd.into_values().flatten().map(|live| (live.step, live.made.map_or(0, |(_, entry)| entry))).collect();
    leave_small(draft, &mut of, &alive);
    let mut ends = Ends { of, copies: 1, turning: vec![false; draft.kinds.len()], odd, staying: Vec::new() };
    for (kind, likes) in alive.iter().enumerate().filter(|&(kind, _)| draft.repeats(kind)) {
        let most =
            likes.iter().filter(|(entry, _)| ends.of[kind][**entry as usize] != End::Open).map(|(_, &likes)| likes);
        let most = most.max().unwrap_or(0);
        ends.copies = ends.copies.max(most + 1);
        ends.turning[kind] = most > 0;
    }
    for (kind, alive) in alive.iter().enumerate() {
        for entry in 0..entries(kind) as u32 {
            if let End::Later(_) = ends.of[kind][entry as usize] {
                let several = draft.repeats(kind) && alive.get(&entry).is_some_and(|&likes| likes > 0);
                ends.of[kind][entry as usize] = ends.releases(draft, kind, entry, several);
            }
        }
    }
    let stays = |live: &&DraftRequest| match live.made {
        Some((kind, entry)) if draft.repeats(kind) => {
            ends.of[kind][entry as usize] == End::Open || ends.odd.contains(&(live.step, entry))
        }
        _ => true,
    };
    ends.staying = draft.live.iter().filter(stays).copied().collect();
    ends
}

/// Gives no offset to what more than two steps keep at once, the most steps first, as long as all of it is small.
fn leave_small(draft: &Draft, of: &mut [Vec<End>], alive: &[FxHashMap<u32, u32>]) {
    let mut kept: Vec<(u32, usize, u32)> = Vec::new();
    for (kind, likes) in alive.iter().enumerate().filter(|&(kind, _)| draft.repeats(kind)) {
        let several = likes.iter().filter(|&(&entry, &likes)| likes > 1 && of[kind][entry as usize] != End::Open);
        kept.extend(several.map(|(&entry, &likes)| (likes, kind, entry)));
    }
    kept.sort_unstable_by(|a, b| b.cmp(a));
    let mut bytes = 0u64;
    for likes in kept.chunk_by(|a, b| a.0 == b.0) {
        for &(likes, kind, entry) in likes {
            let size = draft.kinds[kind].known.keys[entry as usize].size;
            bytes = bytes.saturating_add(size.saturating_mul(u64::from(likes) + 1));
        }
        if bytes > draft.peak / small_kept() {
            return;
        }
        likes.iter().for_each(|&(_, kind, entry)| of[kind][entry as usize] = End::Open);
    }
}

/// How many later requests of the same entry are made before one is gone.
fn likes_made(kind: usize, entry: u32, end: &LaterEnd) -> u32 {
    let passed = end.passed.iter().filter(|&&passed| passed == kind as u32).count() as u32;
    passed + u32::from(end.kind == kind as u32 && end.at > entry)
}

/// Whether a live request has lived for longer than others of its entry did.
fn outlives(draft: &Draft, live: &DraftRequest, of: &[Vec<End>], alive: &[FxHashMap<u32, u32>]) -> bool {
    let Some((kind, entry)) = live.made else { return false };
    let since = draft.since(live.step);
    let likes = alive[kind].get(&entry).copied().unwrap_or(0);
    if since.is_empty() {
        return false;
    }
    let Some(later) = draft.kinds[kind].known.later.get(&entry).filter(|_| of[kind][entry as usize] != End::Open)
    else {
        return true;
    };
    let released = |at: usize, kind: usize| {
        let clock = if at + 1 == since.len() { draft.last } else { u32::MAX };
        likes == 0 && later.ends.iter().any(|end| end.kind == kind as u32 && end.at < clock)
    };
    let mut steps = since.iter().enumerate();
    since.len() > max_passed()
        || live.likes > likes
        || steps.any(|(at, kind)| kind.is_some_and(|kind| released(at, kind)))
}

impl Ends {
    /// Where an entry that outlives its step is released.
    fn releases(&self, draft: &Draft, kind: usize, entry: u32, several: bool) -> End {
        let Some(later) = draft.kinds[kind].known.later.get(&entry) else { return End::Open };
        let mut releases: Vec<StepRelease> = Vec::new();
        let mut passed: FxHashSet<usize> = FxHashSet::default();
        for end in &later.ends {
            passed.extend(end.passed.iter().map(|&kind| kind as usize));
            let turned =
                end.passed.iter().filter(|&&kind| self.turning.get(kind as usize) == Some(&true)).count() as u32;
            let turns = several.then_some(turned + 1);
            if (end.kind as usize) < draft.kinds.len() {
                releases.push(StepRelease { kind: end.kind as usize, turns, at: end.at });
            }
        }
        if !several {
            releases.retain(|release| !passed.contains(&release.kind));
        }
        if !draft.repeats(kind) {
            return if releases.is_empty() { End::Never } else { End::Later(releases) };
        }
        // A kind that was not seen to follow is taken to release it when the others do; and when it is made again, it has
        // been released.
        let latest = releases.iter().map(|release| release.at).max();
        let turns = releases.iter().filter_map(|release| release.turns).max();
        for other in (0..draft.kinds.len()).filter(|&other| draft.repeats(other)) {
            let known = passed.contains(&other) || releases.iter().any(|release| release.kind == other);
            let own = other == kind && !releases.iter().any(|release| release.kind == kind);
            if own && !several {
                releases.push(StepRelease { kind, turns: None, at: latest.unwrap_or(entry).min(entry) });
            } else if let Some(at) = latest.filter(|_| !known) {
                let at = at.min(draft.kinds[other].known.keys.len() as u32);
                releases.push(StepRelease { kind: other, turns, at });
            }
        }
        releases.sort_unstable();
        // The latest for each kind: after the most turns.
        releases.dedup_by(|next, kept| {
            let same = next.kind == kept.kind;
            if same {
                let latest = (next.turns, next.at).max((kept.turns, kept.at));
                (kept.turns, kept.at) = latest;
            }
            same
        });
        End::Later(releases)
    }
}
