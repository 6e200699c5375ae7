//! The size of an arena that is one allocation: chosen by the user, or because the device cannot map pages.

use std::sync::Mutex;

use stalloc_plan::Plan;

/// What a large allocation is rounded up to by the driver, bytes.
const PIECE: u64 = 2 << 20;

/// With neither a plan nor a size, the part of what is free that is taken, in tenths: what remains is for the libraries and for
/// requests that do not fit.
const TENTHS: u64 = 9;

/// What the user asked for; `None`: nothing. Bytes beyond what the plan needs.
static ASKED: Mutex<Option<u64>> = Mutex::new(None);

/// Arenas that are opened from now on are one allocation each, `more` bytes larger than their plan needs.
pub fn set(more: u64) {
    *ASKED.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(more);
}

/// Bytes beyond the plan's that the user asked for; `None` if the arena need not be one allocation.
pub fn asked() -> Option<u64> {
    *ASKED.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// How large an arena is that is one allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// As the plan and the user say, bytes.
    Known(u64),
    /// Nobody said: a part of what is free, bytes.
    Share(u64),
}

/// The size for a plan, with so many bytes more and so many bytes of the device to be had.
pub fn size(plan: &Plan, more: u64, free: u64) -> Size {
    let planned = plan.arena.max(plan.expected_peak);
    match planned.saturating_add(more) {
        0 => Size::Share(free / 10 * TENTHS / PIECE * PIECE),
        bytes => Size::Known(bytes.checked_next_multiple_of(PIECE).unwrap_or(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_size_is_the_plans_and_what_the_user_adds() {
        let plan = Plan { arena: 5 * MIB, expected_peak: 3 * MIB, ..Plan::default() };
        assert_eq!(size(&plan, 0, 100 * MIB), Size::Known(6 * MIB));
        assert_eq!(size(&plan, 10 * MIB, 100 * MIB), Size::Known(16 * MIB));
        assert_eq!(size(&plan, u64::MAX, 100 * MIB), Size::Known(u64::MAX), "the device refuses it");
    }

    #[test]
    fn a_plan_without_offsets_still_says_how_much_lives() {
        let plan = Plan { expected_peak: 7 * MIB, ..Plan::default() };
        assert_eq!(size(&plan, 0, 100 * MIB), Size::Known(8 * MIB));
    }

    #[test]
    fn with_neither_plan_nor_size_most_of_what_is_free_is_taken() {
        assert_eq!(size(&Plan::default(), 0, 100 * MIB), Size::Share(90 * MIB));
        assert_eq!(size(&Plan::default(), 20 * MIB, 100 * MIB), Size::Known(20 * MIB));
    }
}
