//! Which device has which arena, and which arena an address belongs to.

use std::sync::atomic::{AtomicUsize, Ordering};

use stalloc_device::Address;
use stalloc_plan::Plan;

use crate::locked_arena::{LockedArena, Open};
use crate::{fork, pinned};

/// The device number of host memory.
pub const HOST: i32 = -1;

/// GPUs that a process can see, at most.
const MOST_GPUS: usize = 64;

/// Arenas of a process: its GPUs and host memory.
pub(crate) const MOST: usize = MOST_GPUS + 1;

static ARENAS: [LockedArena; MOST] = [const { LockedArena::new() }; MOST];

/// Arenas up to here have been given a plan: a free looks no further.
static USED: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn index(device: i32) -> Option<usize> {
    usize::try_from(device.checked_sub(HOST)?).ok().filter(|&index| index < ARENAS.len())
}

/// None in a forked child, which must not touch its lock.
#[inline]
pub(crate) fn of(device: i32) -> Option<&'static LockedArena> {
    if fork::is_child() { None } else { ARENAS.get(index(device)?) }
}

pub(crate) fn used() -> &'static [LockedArena] {
    &ARENAS[..USED.load(Ordering::Acquire)]
}

/// See [`of`].
#[inline]
pub(crate) fn owner(address: Address) -> Option<(i32, &'static LockedArena)> {
    let device = device_of(address)?;
    Some((device, of(device)?))
}

/// The device of the arena that an address lies in, live or not. Takes no lock, so that a forked child may ask.
pub fn device_of(address: Address) -> Option<i32> {
    let index = used().iter().position(|locked| locked.owns(address))?;
    Some(index as i32 + HOST)
}

/// Every arena that may be open, with its device.
pub(crate) fn all() -> impl Iterator<Item = (i32, &'static LockedArena)> {
    used().iter().enumerate().map(|(index, locked)| (index as i32 + HOST, locked))
}

/// No arena serves anything more, after a fault around them. Takes no lock.
pub(crate) fn retire() {
    pinned::retire();
    used().iter().for_each(LockedArena::retire);
}

/// Whether an arena is open on a device. Takes no lock.
pub(crate) fn is_open(device: i32) -> bool {
    index(device).is_some_and(|index| ARENAS[index].is_open())
}

/// Gives the arena at an index a plan to follow, and says how to open it; false if it has a plan already.
pub(crate) fn prepare(index: usize, plan: Plan, open: Open) -> bool {
    let prepared = ARENAS[index].prepare(plan, open);
    USED.fetch_max(index + 1, Ordering::AcqRel);
    prepared
}
