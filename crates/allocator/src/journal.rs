//! What an arena was asked for, in order, for whoever learns from it.

/// Something that happened. Granules are those of the arena; a block is named by its first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalEvent {
    /// A block was handed out.
    Alloc {
        /// Its first granule.
        start: u32,
        /// Its length.
        granules: u32,
        /// Ordinal of its stream.
        stream: u16,
    },
    /// A block is free again: given back, and done with by every stream.
    Free {
        /// Its first granule.
        start: u32,
    },
    /// A step begins, said the program.
    StepBegin,
    /// The program gave back what no block needs.
    GivenBack,
}

/// Most events that wait for a reader, 12 bytes each.
const MOST: usize = 1 << 21;

/// Events that nobody has read yet.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    events: Vec<JournalEvent>,
    is_on: bool,
    /// Events were left out since nobody read them in time.
    overflowed: bool,
}

impl Journal {
    /// Notes events from now on.
    pub fn turn_on(&mut self) {
        self.is_on = true;
    }

    /// Notes an event.
    #[inline]
    pub fn push(&mut self, event: JournalEvent) {
        if self.is_on {
            self.push_event(event);
        }
    }

    #[inline]
    fn push_event(&mut self, event: JournalEvent) {
        if self.events.len() < MOST {
            self.events.push(event);
        } else {
            self.overflowed = true;
        }
    }

    /// Exchanges the events so far for an empty list, whose memory is used again. False if some are missing: whoever
    /// learns from them has to begin anew.
    pub fn take(&mut self, empty: &mut Vec<JournalEvent>) -> bool {
        empty.clear();
        std::mem::swap(&mut self.events, empty);
        !std::mem::take(&mut self.overflowed)
    }
}

#[cfg(test)]
mod tests;
