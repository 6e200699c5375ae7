//! What a learner knows at one moment, as a value of its own that a plan can be made from elsewhere.

use rustc_hash::FxHashMap;
use stalloc_plan::SectionKind;

use crate::learner::{Learner, StepPattern};
use crate::tuning::max_planned_kinds;

/// What a plan is made from: kinds of steps, their order, and what lives now.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// The kinds, in the order in which they came first.
    pub(crate) kinds: Vec<DraftKind>,
    /// For each step, the index of its kind, if that is among them.
    pub(crate) ran: Vec<Option<usize>>,
    /// The number of the first of those steps.
    pub(crate) first: u32,
    /// Requests of the last one, which may have been cut off.
    pub(crate) last: u32,
    /// What lives now.
    pub(crate) live: Vec<DraftRequest>,
    /// Most live bytes so far.
    pub(crate) peak: u64,
}

/// A kind in a draft.
#[derive(Clone, Debug)]
pub(crate) struct DraftKind {
    /// What the learner knows of it.
    pub known: StepPattern,
    /// What it is in a plan.
    pub section: SectionKind,
    /// A name for people.
    pub name: String,
}

/// A live request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DraftRequest {
    /// What the caller calls it.
    pub id: u64,
    /// Bytes.
    pub size: u64,
    /// The kind of the step that made it, if that is in the draft: its index and the entry there.
    pub made: Option<(usize, u32)>,
    /// The step that made it.
    pub step: u32,
    /// How many steps of its kind came since.
    pub likes: u32,
}

impl Learner {
    /// What a plan for the running program can be made from: the repeating steps that come now, and what lives now. To be asked
    /// for right after a step's end. O(requests of these steps + live requests).
    pub fn draft(&mut self) -> Draft {
        let repeating = self.kinds.keys().copied().filter(|&id| self.comes(id)).collect();
        let draft = self.snapshot(false);
        self.note_draft(repeating, draft.requests());
        draft
    }

    /// All that is known, or the repeating steps that come now alone.
    pub(crate) fn snapshot(&self, whole: bool) -> Draft {
        let wanted = |id: u32, kind: &StepPattern| if whole { kind.runs > 1 } else { self.comes(id) };
        let mut chosen: Vec<(&u32, &StepPattern)> = self.kinds.iter().filter(|&(&id, kind)| wanted(id, kind)).collect();
        chosen.sort_by_key(|(id, kind)| (std::cmp::Reverse(kind.runs), **id));
        chosen.truncate(max_planned_kinds());
        let one_off = self.kinds.iter().filter(|(_, kind)| whole && kind.runs < 2);
        chosen.extend(one_off.take(max_planned_kinds()));
        chosen.sort_by_key(|(id, _)| **id);
        let index: FxHashMap<u32, usize> = chosen.iter().enumerate().map(|(i, (id, _))| (**id, i)).collect();
        let mut repeating = 0;
        let kinds = chosen.into_iter().map(|(&id, kind)| {
            let (section, name) = match kind.runs {
                2.. => {
                    repeating += 1;
                    let name = if repeating == 1 { "step".to_owned() } else { format!("step, kind {repeating}") };
                    (SectionKind::Repeating, name)
                }
                _ if self.first.is_none_or(|first| id < first) => (SectionKind::Prologue, "prologue".to_owned()),
                _ if self.first == Some(id) => (SectionKind::Once, "first step".to_owned()),
                _ => (SectionKind::Once, format!("step {}, seen once", id - self.first.unwrap_or(0) + 1)),
            };
            DraftKind { known: self.known(kind, &index), section, name }
        });
        let live = self.live.iter().filter(|(_, block)| block.step < self.steps).map(|(&id, block)| DraftRequest {
            id,
            size: block.size,
            made: index.get(&block.kind).map(|&kind| (kind, block.entry)),
            step: block.step,
            likes: self.kinds.get(&block.kind).map_or(0, |kind| kind.runs.saturating_sub(block.run + 1)),
        });
        let mut live: Vec<DraftRequest> = live.collect();
        live.sort_unstable_by_key(|live| (live.step, live.made, live.id));
        Draft {
            kinds: kinds.collect(),
            ran: self.ran.iter().map(|ran| index.get(&ran.kind).copied()).collect(),
            first: self.steps - self.ran.len() as u32,
            last: self.ran.back().map_or(0, |ran| ran.requests),
            live,
            peak: self.peak,
        }
    }

    /// A kind, with indices for the kinds that it names.
    fn known(&self, kind: &StepPattern, index: &FxHashMap<u32, usize>) -> StepPattern {
        let mut known = kind.clone();
        let number = |id: u32| index.get(&id).map_or(u32::MAX, |&index| index as u32);
        for end in known.later.values_mut().flat_map(|later| &mut later.ends) {
            end.kind = number(end.kind);
            end.passed.iter_mut().for_each(|kind| *kind = number(*kind));
        }
        known
    }
}

impl Draft {
    /// How many requests its kinds have.
    pub fn requests(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.known.keys.len() as u64).sum()
    }

    pub(crate) fn repeats(&self, kind: usize) -> bool {
        self.kinds[kind].section == SectionKind::Repeating
    }

    /// Kinds of the steps after one, as far as they are known.
    pub(crate) fn since(&self, step: u32) -> &[Option<usize>] {
        let at = (step + 1).saturating_sub(self.first) as usize;
        self.ran.get(at..).unwrap_or_default()
    }
}
