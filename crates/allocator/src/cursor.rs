//! Where the program is in the plan.
//!
//! The cursor compares each request with the entry that is expected next. It stays where it is for a request that
//! does not fit (an extra one), passes over dynamic entries that do not come, and moves elsewhere only on the evidence
//! of several requests in a row: two for a place nearby, [`CONTEXT`] for one anywhere. Where a section begins, every
//! section may be the one: all that fit are kept as candidates until requests tell them apart.
//!
//! What it says is a hint: a wrong guess costs memory, never correctness.

use self::fit::{LOOK_AHEAD, fit, may_be_planned, repeated, slot_at};
use crate::history::History;
use crate::script::{CONTEXT, Expect, Key, Position, Script};

/// Most sections that are told apart at a beginning.
const MAX_CANDIDATES: usize = 16;

/// Sections that are equal up to here are not told apart any more.
const UNDECIDED: u32 = 512;

/// How far a place nearby may be, entries.
const NEARBY: u32 = 64;

/// With more misfits than this among the last 64 requests, the program is not following the plan, wherever it is.
const MANY_MISFITS: u32 = 12;

/// Requests that are remembered.
const RECENT: usize = 16;

/// What a request is to the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guess {
    /// A planned one.
    Slot {
        /// Its slot.
        slot: u32,
        /// The slot's offset, granules.
        place: u32,
    },
    /// One of a dynamic group.
    Dynamic(u32),
    /// Not in the plan, while the program is following it.
    Extra,
    /// Not in the plan, and it is not known where in the plan the program is.
    Lost,
}

/// A place where the program may be.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    at: Position,
    /// The plan knows that it comes next here.
    expected: bool,
    /// It was there before a step was said to begin, and goes on.
    continued: bool,
}

/// Follows a program through a [`Script`].
#[derive(Clone, Debug)]
pub struct Cursor {
    /// Where the program may be, likeliest first; more than one only near the beginning of a section; none: lost.
    candidates: Vec<Candidate>,
    /// Where the program last was for certain.
    last: Position,
    /// The last requests, by number modulo [`RECENT`].
    recent: [Key; RECENT],
    /// Requests so far.
    requests: u64,
    /// One bit per request, newest lowest: it did not fit.
    misfits: u64,
    /// The last request may have been the planned one after a run of dynamic entries: where that would lead.
    /// It says so only until the next request, whose number comes with it.
    run_over: Option<(u64, Position)>,
    /// Steps begin where the plan's sections do, as far as is known.
    marks_begin_sections: bool,
    /// The last step was said to begin when a section had just begun: that says nothing of where others do.
    mark_was_late: bool,
    history: History,
}

impl Cursor {
    /// At the plan's beginning.
    pub fn new(script: &Script) -> Self {
        let mut cursor = Cursor {
            candidates: Vec::with_capacity(MAX_CANDIDATES + 1),
            last: Position { section: 0, index: 0 },
            recent: [Key::default(); RECENT],
            requests: 0,
            misfits: 0,
            run_over: None,
            marks_begin_sections: true,
            mark_was_late: false,
            history: History::default(),
        };
        cursor.candidates_at_beginning(script);
        cursor
    }

    /// Whether it knows where the program is.
    pub fn is_lost(&self) -> bool {
        self.candidates.is_empty()
    }

    /// The entry that is expected next, if there is one for certain.
    pub fn expected<'a>(&self, script: &'a Script) -> Option<&'a Expect> {
        let at = self.candidates.first()?.at;
        script.entries(at.section).get(at.index as usize)
    }

    /// What a request is. O(1) when it is what was expected; the worst case looks at [`NEARBY`] entries.
    #[inline]
    pub fn advance(&mut self, script: &Script, key: Key) -> Guess {
        self.remember(key);
        match self.follow(script, key) {
            Some(guess) => guess,
            None => self.advance_slowly(script, key),
        }
    }

    #[inline]
    fn remember(&mut self, key: Key) {
        self.recent[self.requests as usize % RECENT] = key;
        self.requests += 1;
        self.misfits <<= 1;
    }

    /// Answers for a request that is what was expected, and can be nothing else.
    #[inline]
    fn follow(&mut self, script: &Script, key: Key) -> Option<Guess> {
        let [candidate] = &mut self.candidates[..] else { return None };
        let entries = script.entries(candidate.at.section);
        let entry = entries.get(candidate.at.index as usize)?;
        match entry.group() {
            None if entry.key == key => {
                candidate.at.index += 1;
                entry.slot().map(|slot| Guess::Slot { slot, place: entry.place })
            }
            Some(group)
                if script.groups[group as usize].has_seen(key)
                    && self.run_over.is_none_or(|(number, _)| number != self.requests)
                    && !may_be_planned(script, entries, entry.place, key) =>
            {
                candidate.at.index += 1;
                self.last = candidate.at;
                Some(Guess::Dynamic(group))
            }
            _ => None,
        }
    }

    fn advance_slowly(&mut self, script: &Script, key: Key) -> Guess {
        if self.may_have_ended(script)
            && let Some(guess) = self.begin_section(script, key)
        {
            return guess;
        }
        if let Some(guess) = self.leave_run(script, key) {
            return guess;
        }
        if let Some(guess) = self.narrow(script, key) {
            return guess;
        }
        self.misfits |= 1;
        if let Some((guess, at)) = self.find_place(script, key) {
            self.move_to(at);
            return guess;
        }
        if self.misfits.trailing_ones() >= 16 || self.misfits.count_ones() >= 48 {
            self.lose();
        }
        let Some(candidate) = self.candidates.first() else { return Guess::Lost };
        if let Some(group) = repeated(script, candidate.at, key) {
            return Guess::Dynamic(group);
        }
        if self.misfits.count_ones() > MANY_MISFITS { Guess::Lost } else { Guess::Extra }
    }

    /// A step begins, says the program.
    pub fn step_begin(&mut self, script: &Script) {
        let under_way = !self.may_have_ended(script);
        self.mark_was_late = under_way && self.has_just_begun(script);
        // Of sections that have just begun it may not be known yet which it is; then none is in the history.
        let (kept, continued) = match self.candidates.len() {
            several @ 2.. if self.mark_was_late => (several, false),
            _ => (usize::from(under_way), true),
        };
        let going_on = self.candidates.iter().take(kept).filter(|candidate| candidate.at.index > 0);
        let going_on = going_on.map(|candidate| Candidate { expected: true, continued, ..*candidate });
        let going_on: Vec<Candidate> = going_on.collect();
        self.candidates_at_beginning(script);
        self.misfits = 0;
        let first = self.mark_was_late || !self.marks_begin_sections;
        let place = if first { 0 } else { self.candidates.len() };
        self.candidates.splice(place..place, going_on);
    }

    /// Whether the mark comes a little late, as after the batch was loaded: what is followed without a misfit is the
    /// beginning of a section that comes again.
    fn has_just_begun(&self, script: &Script) -> bool {
        let near_beginning = |candidate: &Candidate| {
            let section = &script.sections[candidate.at.section as usize];
            let index = candidate.at.index;
            section.repeats && (1..=NEARBY).contains(&index) && (index * 4) as usize <= section.entries.len()
        };
        let fits = |candidate: &Candidate| self.misfits.trailing_zeros() >= candidate.at.index;
        !self.is_lost() && self.candidates.iter().all(|candidate| near_beginning(candidate) && fits(candidate))
    }

    /// Leaves a run of dynamic entries before its end if the last request and this one are the planned ones after it.
    fn leave_run(&mut self, script: &Script, key: Key) -> Option<Guess> {
        let run_over = self.run_over.filter(|&(number, _)| number == self.requests);
        if let Some((guess, at)) = run_over.and_then(|(_, at)| slot_at(script, at, key)) {
            self.move_to(at);
            return Some(guess);
        }
        let at = self.candidates.first()?.at;
        let entries = script.entries(at.section);
        let entry = entries.get(at.index as usize).filter(|entry| entry.group().is_some())?;
        let (planned, after) = slot_at(script, Position { index: entry.place, ..at }, key)?;
        // What always comes, in a size that it has had, does not end the run: what must come may not have come yet.
        let group = entry.group().map(|group| &script.groups[group as usize]);
        if group.is_some_and(|group| group.always && group.has_seen(key)) {
            return None;
        }
        self.run_over = Some((self.requests + 1, after));
        // Before the next request says so, the cursor stays in the run. But where nothing near had this size, it has the
        // planned one's place already: elsewhere it would be in the way of those that follow.
        let mut near = entries[at.index as usize..entry.place as usize].iter().take(LOOK_AHEAD);
        let is_seen = near.any(|entry| {
            let group = entry.group().map(|group| &script.groups[group as usize]);
            group.is_some_and(|group| group.has_seen(key) || group.awaits(key))
        });
        if is_seen { None } else { self.narrow(script, key).map(|_| planned) }
    }

    /// Keeps the candidates that a request fits, and answers for the likeliest; changes nothing if it fits none.
    fn narrow(&mut self, script: &Script, key: Key) -> Option<Guess> {
        let before = self.candidates.len();
        // What the plan knows to come next goes before what it does not: of two equal sections only one is meant.
        let fits = |candidate: &&Candidate| fit(script, candidate.at, key).is_some();
        let best = self.candidates.iter().filter(fits).max_by_key(|candidate| candidate.expected)?.expected;
        let mut guess = None;
        self.candidates.retain_mut(|candidate| {
            let Some((this, next)) = fit(script, candidate.at, key).filter(|_| candidate.expected == best) else {
                return false;
            };
            guess.get_or_insert(this);
            candidate.at = next;
            true
        });
        if self.candidates.first().is_some_and(|candidate| candidate.at.index >= UNDECIDED) {
            self.candidates.truncate(1);
        }
        if let (true, [only]) = (before > 1, &self.candidates[..]) {
            if !self.mark_was_late {
                self.marks_begin_sections = !only.continued;
            }
            self.history.now_in(only.at.section, only.continued);
        }
        self.last = self.candidates[0].at;
        guess
    }

    /// Whether nothing more *must* come in the section: all that is left of it is dynamic.
    fn may_have_ended(&self, script: &Script) -> bool {
        self.candidates.first().is_some_and(|candidate| {
            let entries = script.entries(candidate.at.section);
            match entries.get(candidate.at.index as usize) {
                Some(entry) => entry.group().is_some() && entry.place as usize == entries.len(),
                None => true,
            }
        })
    }

    /// Begins a section if the request is the first planned one of any; if nothing is left of the section before, a
    /// dynamic one at the beginning of one that is expected will do.
    fn begin_section(&mut self, script: &Script, key: Key) -> Option<Guess> {
        let before = self.candidates.first().copied()?;
        let is_over = before.at.index as usize >= script.entries(before.at.section).len();
        self.candidates_at_beginning(script);
        self.candidates.retain(|candidate| match fit(script, candidate.at, key) {
            Some((Guess::Slot { .. }, _)) => true,
            Some(_) => is_over && candidate.expected,
            None => false,
        });
        if self.candidates.is_empty() {
            self.candidates.push(before);
            return None;
        }
        if let [only] = &self.candidates[..] {
            self.history.now_in(only.at.section, false);
        }
        self.narrow(script, key)
    }

    /// Every section's beginning, likeliest first.
    fn candidates_at_beginning(&mut self, script: &Script) {
        let now = self.candidates.first().map(|candidate| candidate.at.section);
        self.candidates.clear();
        let followers = now.map_or(&[][..], |now| &script.sections[now as usize].followers);
        let likely = self.history.likely_next();
        let expected = likely.into_iter().chain(followers.iter().copied()).map(|section| (section, true));
        let others = (0..script.sections.len() as u32).map(|section| (section, now.is_none() && section == 0));
        for (section, expected) in expected.chain(others) {
            let at = Position { section, index: 0 };
            if self.candidates.len() < MAX_CANDIDATES && self.candidates.iter().all(|other| other.at != at) {
                self.candidates.push(Candidate { at, expected, continued: false });
            }
        }
    }

    /// The place that the last requests speak for, after they did not fit.
    fn find_place(&mut self, script: &Script, key: Key) -> Option<(Guess, Position)> {
        let in_a_row = self.misfits.trailing_ones();
        if in_a_row >= 2
            && let Some(at) = self.candidates.first().map(|candidate| candidate.at)
        {
            // Others came in place of the expected ones: what comes after them fits again.
            let substituted = Position { index: at.index.saturating_add(in_a_row - 1), ..at };
            if let Some(found) = fit(script, substituted, key) {
                return Some(found);
            }
            if let Some(found) = self.find_nearby(script, at, key) {
                return Some(found);
            }
        }
        if (self.misfits & 0xff).count_ones() >= CONTEXT as u32 || self.is_lost() {
            let after = script.after_context(&self.context()?, self.last)?;
            return slot_at(script, Position { index: after.index - 1, ..after }, key);
        }
        None
    }

    /// A place nearby where the last two requests follow each other, forward first.
    fn find_nearby(&self, script: &Script, at: Position, key: Key) -> Option<(Guess, Position)> {
        let entries = script.entries(at.section);
        let previous = self.recent[(self.requests as usize).wrapping_sub(2) % RECENT];
        let is_there = |&index: &u32| {
            let pair = entries.get(index as usize - 1).zip(entries.get(index as usize));
            pair.is_some_and(|(before, entry)| {
                entry.slot().is_some() && entry.key == key && before.slot().is_some() && before.key == previous
            })
        };
        let (low, high) = (at.index.saturating_sub(NEARBY), at.index.saturating_add(NEARBY).min(entries.len() as u32));
        let forward = (at.index.max(1)..high).find(is_there);
        let index = forward.or_else(|| (low.max(1)..at.index).rev().find(is_there))?;
        slot_at(script, Position { index, ..at }, key)
    }

    /// The last requests.
    fn context(&self) -> Option<[Key; CONTEXT]> {
        let first = (self.requests as usize).checked_sub(CONTEXT)?;
        Some(std::array::from_fn(|number| self.recent[(first + number) % RECENT]))
    }

    fn move_to(&mut self, at: Position) {
        self.candidates.clear();
        self.candidates.push(Candidate { at, expected: true, continued: false });
        self.last = at;
        self.history.now_in(at.section, true);
    }

    fn lose(&mut self) {
        if let Some(candidate) = self.candidates.first() {
            self.last = candidate.at;
        }
        self.candidates.clear();
    }
}

mod fit;
#[cfg(test)]
mod tests;
