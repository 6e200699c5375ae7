//! What an arena learns while it serves: from its journal to plans that it may follow.
//!
//! The same for a running job, where a thread does it ([`Learning::think`] may take as long as planning takes, and needs no
//! lock), and for a replay, where it is done between two requests. Whoever drives it
//! 1. exchanges the arena's journal: `Arena::take_journal(learning.journal())`, and says so with [`Learning::hear`];
//! 2. asks [`Learning::think`], with the arena's statistics;
//! 3. proposes to the arena what comes out, and tells the answer to [`Learning::answered`].

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::ops::Range;

use stalloc_allocator::{FrameSet, GRANULE, JournalEvent, Script, Statistics};
use stalloc_plan::Plan;
use stalloc_synthesizer::{Around, Draft, Learner, SynthesisOptions, exact_share, recent_steps};
use stalloc_trace::StackId;
use stalloc_trace::growth::{Growing, GrowthWatch};

/// What is known of one arena's program. Memory is bounded, see [`Learner`].
#[derive(Debug, Default)]
pub struct Learning {
    learner: Learner,
    events: Vec<JournalEvent>,
    /// Some events were lost: what is known is not the whole program.
    is_partial: bool,
    /// A plan with offsets is followed, as far as is known.
    has_plan: bool,
    /// Requests and those at planned offsets, at the ends of the last steps since a plan was proposed.
    served: VecDeque<(u64, u64)>,
    /// Steps known when that was last looked at.
    steps: u32,
    /// The step from whose beginning on `served` is kept: in a plan's first step, what lived before is still at its addresses.
    judged_from: u32,
    /// Whether memory grows, where anybody wants to know.
    growth: Option<GrowthWatch>,
    growing: Option<Growing>,
    /// The last plan made was not followed.
    was_refused: bool,
    /// What the plan was made of that waits for its answer, if another can be made of it.
    draft: Option<Draft>,
}

/// Why no plan is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The last steps do not repeat.
    Vary,
    /// They repeat, and no plan is made of them yet.
    NoTime,
    /// They repeat, and a plan of them would need more memory than there is for it, or than it needs without.
    Refused,
}

/// How much is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knowledge {
    /// The last steps repeat.
    pub repeats: bool,
    /// Kinds of steps, and their requests.
    kinds: (usize, usize),
}

/// A change of plan.
#[derive(Debug, Default)]
pub struct Proposal {
    /// What is to be followed; empty: nothing.
    pub script: Script,
    /// What lives already and stays where it is, granules.
    staying: Vec<Range<u32>>,
}

impl Learning {
    /// One that also looks whether memory grows from step to step, see [`Learning::take_growing`].
    pub fn with_growth() -> Self {
        Learning { growth: Some(GrowthWatch::new()), ..Learning::default() }
    }

    /// What was found of memory that grows; once.
    pub fn take_growing(&mut self) -> Option<Growing> {
        self.growing.take()
    }

    /// Why no plan is followed, after what was heard so far.
    pub fn finding(&self) -> Finding {
        if self.was_refused {
            Finding::Refused
        } else if self.is_partial || self.learner.repeats_now() {
            Finding::NoTime
        } else {
            Finding::Vary
        }
    }

    /// The list that an arena's journal is exchanged for.
    pub fn journal(&mut self) -> &mut Vec<JournalEvent> {
        &mut self.events
    }

    /// Takes the journal into account; `is_whole`: nothing is missing in it. O(events).
    pub fn hear(&mut self, is_whole: bool) {
        if !is_whole {
            self.learner = Learner::default();
            self.is_partial = true;
            self.judged_from = 0;
            self.growth = self.growth.take().map(|_| GrowthWatch::new());
        }
        for event in self.events.drain(..) {
            if let Some(watch) = &mut self.growth {
                let found = watched(watch, event);
                self.growing = found.or(self.growing);
            }
            match event {
                JournalEvent::Alloc { start, granules, stream } => {
                    self.learner.alloc(start.into(), u64::from(granules) * GRANULE, stream.into());
                }
                JournalEvent::Free { start } => self.learner.free(start.into()),
                JournalEvent::StepBegin => self.learner.step_begin(),
                JournalEvent::GivenBack => {}
            }
        }
    }

    /// What is to be proposed now, if anything: a plan if the last steps repeat and none serves them well, or none where
    /// they no longer do. Takes as long as planning does.
    pub fn think(&mut self, now: &Statistics) -> Option<Proposal> {
        if self.learner.steps() != self.steps {
            self.steps = self.learner.steps();
            if self.steps >= self.judged_from {
                self.served.push_back((now.requests, now.planned));
            }
            if self.served.len() > recent_steps() + 1 {
                self.served.pop_front();
            }
        }
        if self.learner.is_draft_due() {
            let draft = self.learner.draft();
            if self.is_served_well() == Some(true) {
                return None;
            }
            // Without a plan the arena goes on as it is.
            let proposal = Proposal::around(&draft, Around::Between);
            self.was_refused = proposal.is_none();
            if self.was_refused {
                self.learner.forget_draft(true);
            }
            self.draft = proposal.is_some().then_some(draft);
            return proposal;
        }
        let leaves = self.has_plan && !self.learner.repeats_now() && self.is_served_well() == Some(false);
        leaves.then(Proposal::default)
    }

    /// Whether the plan that is followed serves most requests of the last steps; `None` where that is not known yet.
    fn is_served_well(&self) -> Option<bool> {
        let (first, last) = (self.served.front()?, self.served.back()?);
        let (requests, planned) = (last.0 - first.0, last.1 - first.1);
        (self.served.len() > 2).then_some(planned > 0 && planned as f64 >= exact_share() * requests as f64)
    }

    /// Whether the arena took what was proposed. What is to be proposed instead, if it did not and there is something else:
    /// a plan that needs less memory, though more of it has to be remapped.
    pub fn answered(&mut self, is_plan: bool, accepted: bool) -> Option<Proposal> {
        let draft = self.draft.take();
        if accepted {
            self.has_plan = is_plan;
            self.served.clear();
            self.judged_from = self.steps + 2;
        } else if let Some(tighter) = draft.and_then(|draft| Proposal::around(&draft, Around::Above)) {
            return Some(tighter);
        }
        self.was_refused = is_plan && !accepted;
        if is_plan != accepted {
            // A plan that there is no memory for now, or that is of no use now, may be of use later.
            self.learner.forget_draft(is_plan);
        }
        None
    }

    /// How much is known now.
    pub fn known(&self) -> Knowledge {
        Knowledge { repeats: !self.is_partial && self.learner.repeats_now(), kinds: self.learner.kept() }
    }

    /// What is known now, for a plan of it while the program runs on.
    pub fn so_far(&self) -> Learning {
        Learning { learner: self.learner.clone(), is_partial: self.is_partial, ..Learning::default() }
    }

    /// A plan of all that is known, for keeping; `None` where that is not the whole program, or does not repeat.
    pub fn whole_plan(self) -> Option<Plan> {
        let plan = (!self.is_partial).then(|| self.learner.whole_plan(&SynthesisOptions::default()));
        plan.filter(|plan| !plan.slots.is_empty())
    }
}

fn watched(watch: &mut GrowthWatch, event: JournalEvent) -> Option<Growing> {
    match event {
        JournalEvent::Alloc { start, granules, .. } => {
            watch.alloc(start.into(), u64::from(granules) * GRANULE, StackId::NONE);
            None
        }
        JournalEvent::Free { start } => {
            watch.free(start.into());
            None
        }
        JournalEvent::StepBegin => watch.step_begin(),
        JournalEvent::GivenBack => None,
    }
}

impl Proposal {
    fn around(draft: &Draft, around: Around) -> Option<Proposal> {
        let drafted = draft.plan(|start| Some(start * GRANULE), around).ok()?;
        let granule = |at: u64| u32::try_from(at / GRANULE).unwrap_or(u32::MAX);
        let staying = drafted.staying.iter().map(|stays| granule(stays.start)..granule(stays.end)).collect();
        Some(Proposal { script: Script::new(&drafted.plan).ok()?, staying })
    }

    /// Whether it is a plan with offsets.
    pub fn is_plan(&self) -> bool {
        !self.script.is_empty()
    }

    /// The pieces of memory that its offsets and what stays touch, where the device maps pieces of so many bytes. O(offsets).
    pub fn frames(&self, size: Option<u64>) -> FrameSet {
        let Some(size) = size else { return FrameSet::default() };
        let mut frames = self.script.frames(size);
        self.staying.iter().for_each(|stays| frames.insert(stays.clone(), size));
        frames
    }
}

#[cfg(test)]
mod tests;
