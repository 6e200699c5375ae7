//! Kinds of operations.

/// What the observer does for an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// Nothing but forget what it writes.
    Other,
    /// Compute it.
    Computed,
    /// Compute it; while it runs it reads how many elements it found.
    Counted,
    /// Draw its indices if they are unknown.
    Drawn,
    /// It asks whether tensors are equal, in one byte.
    Check,
    /// It makes tensors with nothing in them.
    Made,
    /// Take it to be true if its input is unknown.
    Assumed,
    /// Compute it; what it copies may go to the host.
    Copied,
    /// It reads one number from the device.
    Read,
    /// Draw its numbers, whatever it is given.
    Random,
    /// As `Counted`; of the rows of a dimension, its second input.
    CountedRows,
    /// Compute it; what its first input held may not matter.
    Placed,
    /// It reads how many places of a sparse tensor differ.
    Coalesced,
}

impl Duty {
    /// As Python has it.
    pub fn from_number(number: u32) -> Self {
        match number {
            1 => Self::Computed,
            2 => Self::Counted,
            3 => Self::Drawn,
            4 => Self::Check,
            5 => Self::Made,
            6 => Self::Assumed,
            7 => Self::Copied,
            8 => Self::Read,
            9 => Self::Random,
            10 => Self::CountedRows,
            11 => Self::Placed,
            12 => Self::Coalesced,
            _ => Self::Other,
        }
    }
}
