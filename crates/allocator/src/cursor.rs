//! Where the program is in the plan.
//!
//! The cursor compares each request with the entry that is expected next. It stays where it is for a request that
//! does not fit, and goes elsewhere only on the evidence of [`CONTEXT`] requests in a row. Where a section begins, every
//! section may be the one: all that fit are kept as candidates until requests tell them apart.
//!
//! What it says is a hint: a wrong guess costs memory, never correctness.

pub use crate::script::Guess;
use crate::script::{CONTEXT, Expect, Key, Position, Script};

/// Requests that are remembered, and that do not fit in a row before the position is unknown.
const RECENT: usize = 16;

/// Sections that are told apart where one begins: more are not worth the time.
const CANDIDATES: usize = 16;

/// Sections that are equal up to this entry are not told apart any more, so that a request costs O(1) again: the likeliest is taken.
const UNDECIDED: u32 = 512;

/// A position at which the program may be.
#[derive(Clone, Copy, Debug)]
struct CandidatePosition {
    at: Position,
    /// The plan says that it comes next here.
    expected: bool,
    /// It was there before a step was said to begin, and goes on.
    continued: bool,
}

/// Follows a program through a [`Script`].
#[derive(Clone, Debug)]
pub struct Cursor {
    /// Where the program may be, likeliest first; several only near the beginning of a section; none: unknown.
    candidates: Vec<CandidatePosition>,
    /// Where the program last was for certain.
    last: Position,
    /// The last requests, by number modulo [`RECENT`].
    recent: [Key; RECENT],
    /// Requests so far.
    requests: u64,
    /// One bit per request since a step was last said to begin, newest lowest: it did not fit.
    misfits: u64,
    /// Steps begin where the plan's sections do, as far as is known.
    marks_begin_sections: bool,
}

impl Cursor {
    /// At the plan's beginning.
    pub fn new(script: &Script) -> Self {
        let mut cursor = Cursor {
            candidates: Vec::with_capacity(CANDIDATES + 1),
            last: Position { section: 0, index: 0 },
            recent: [Key::default(); RECENT],
            requests: 0,
            misfits: 0,
            marks_begin_sections: true,
        };
        cursor.candidates_at_beginning(script);
        cursor
    }

    /// Whether it is unknown where the program is.
    pub fn is_unknown(&self) -> bool {
        self.candidates.is_empty()
    }

    /// The entry that is expected next, if there is one for certain.
    pub fn expected<'a>(&self, script: &'a Script) -> Option<&'a Expect> {
        let at = self.candidates.first()?.at;
        script.entries(at.section).get(at.index as usize)
    }

    /// What a request is. O(1) when it is what was expected; the worst case looks at all places where [`CONTEXT`]
    /// requests follow each other as the last ones did.
    #[inline]
    pub fn advance(&mut self, script: &Script, key: Key) -> Guess {
        if let [candidate] = &mut self.candidates[..]
            && let Some(entry) = script.entries(candidate.at.section).get(candidate.at.index as usize)
            && entry.key == key
        {
            candidate.at.index += 1;
            self.remember(key);
            return entry.guess();
        }
        if script.is_empty() {
            return Guess::NotInPlan;
        }
        self.remember(key);
        self.advance_slowly(script, key)
    }

    #[inline]
    fn remember(&mut self, key: Key) {
        self.recent[self.requests as usize % RECENT] = key;
        self.requests += 1;
        self.misfits <<= 1;
    }

    #[cold]
    fn advance_slowly(&mut self, script: &Script, key: Key) -> Guess {
        if self.has_ended(script)
            && let Some(guess) = self.begin_section(script, key)
        {
            return guess;
        }
        if let Some(guess) = self.narrow(script, key) {
            return guess;
        }
        self.misfits |= 1;
        if let Some((guess, at)) = self.find_position(script, key) {
            self.go_to(at);
            return guess;
        }
        if self.misfits.trailing_ones() >= RECENT as u32 {
            self.candidates.clear();
        }
        if self.is_unknown() { Guess::Unknown } else { Guess::NotInPlan }
    }

    /// A step begins, says the program.
    pub fn step_begin(&mut self, script: &Script) {
        let under_way = self.candidates.first().copied().filter(|candidate| candidate.at.index > 0);
        let going_on = under_way.filter(|_| !self.has_ended(script));
        self.candidates_at_beginning(script);
        self.misfits = 0;
        if let Some(going_on) = going_on {
            let place = if self.marks_begin_sections { self.candidates.len() } else { 0 };
            self.candidates.insert(place, CandidatePosition { expected: true, continued: true, ..going_on });
        }
    }

    /// Keeps the candidates that a request fits, and answers for the likeliest; changes nothing if it fits none.
    fn narrow(&mut self, script: &Script, key: Key) -> Option<Guess> {
        let several = self.candidates.len() > 1;
        // What is expected to come next goes before what is not: of two equal sections only one is meant.
        let fits = |candidate: &&CandidatePosition| fit(script, candidate.at, key).is_some();
        let best = self.candidates.iter().filter(fits).max_by_key(|candidate| candidate.expected)?.expected;
        let mut guess = None;
        self.candidates.retain_mut(|candidate| {
            let Some(this) = fit(script, candidate.at, key).filter(|_| candidate.expected == best) else {
                return false;
            };
            guess.get_or_insert(this);
            candidate.at.index += 1;
            true
        });
        if self.candidates.first().is_some_and(|candidate| candidate.at.index >= UNDECIDED) {
            self.candidates.truncate(1);
        }
        if let (true, [only]) = (several, &self.candidates[..]) {
            self.marks_begin_sections = !only.continued;
        }
        self.last = self.candidates[0].at;
        guess
    }

    /// Whether nothing more comes in the section.
    fn has_ended(&self, script: &Script) -> bool {
        let at_end = |at: Position| at.index as usize >= script.entries(at.section).len();
        self.candidates.first().is_some_and(|candidate| at_end(candidate.at))
    }

    /// Begins a section if the request is the first of any.
    fn begin_section(&mut self, script: &Script, key: Key) -> Option<Guess> {
        let before = self.candidates.first().copied()?;
        self.candidates_at_beginning(script);
        self.candidates.retain(|candidate| fit(script, candidate.at, key).is_some());
        if self.candidates.is_empty() {
            self.candidates.push(before);
            return None;
        }
        self.narrow(script, key)
    }

    /// Every section's beginning, likeliest first.
    fn candidates_at_beginning(&mut self, script: &Script) {
        let now = self.candidates.first().map(|candidate| candidate.at.section);
        self.candidates.clear();
        let followers = now.map_or(&[][..], |now| &script.sections[now as usize].followers);
        let expected = followers.iter().map(|&section| (section, true));
        let others = (0..script.sections.len() as u32).map(|section| (section, now.is_none() && section == 0));
        for (section, expected) in expected.chain(others) {
            let at = Position { section, index: 0 };
            if self.candidates.len() < CANDIDATES && self.candidates.iter().all(|other| other.at != at) {
                self.candidates.push(CandidatePosition { at, expected, continued: false });
            }
        }
    }

    /// The position that the last requests speak for, after they did not fit: the guess, and the position after it.
    fn find_position(&mut self, script: &Script, key: Key) -> Option<(Guess, Position)> {
        if (self.misfits & 0xff).count_ones() < CONTEXT as u32 && !self.is_unknown() {
            return None;
        }
        let at = script.after_context(&self.context()?, self.last)?;
        let guess = fit(script, Position { index: at.index.checked_sub(1)?, ..at }, key)?;
        Some((guess, at))
    }

    /// The last requests.
    fn context(&self) -> Option<[Key; CONTEXT]> {
        let first = (self.requests as usize).checked_sub(CONTEXT)?;
        Some(std::array::from_fn(|number| self.recent[(first + number) % RECENT]))
    }

    fn go_to(&mut self, at: Position) {
        self.candidates.clear();
        self.candidates.push(CandidatePosition { at, expected: true, continued: false });
        self.last = at;
    }
}

/// What a request is at a position, if it is what is expected there.
fn fit(script: &Script, at: Position, key: Key) -> Option<Guess> {
    let entry = script.entries(at.section).get(at.index as usize)?;
    (entry.key == key).then(|| entry.guess())
}

#[cfg(test)]
mod tests;
