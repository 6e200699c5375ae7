//! The planned arenas of one process, and the C interface that PyTorch's shims call.
//!
//! A process has an arena for each GPU and one for host memory. An arena is given a plan ([`prepare`]), opens its arena
//! when the program first asks it for memory (only then is the device awake), and from then on serves all that fits; a plan
//! without slots makes it the open arena. What it cannot serve is the caller's own fallback's: the functions here say
//! `None`, never an error.
//!
//! The rooms: `table` (C), `fault` (no panic reaches C), `arenas` (what a process asks of its arenas), `devices` (an arena each, its
//! lock, and which of them an address belongs to), `serving` (an arena, whatever device it is on), `counters` (its share of PyTorch's
//! statistics), `segments` (its share of snapshots), `exports` and `descriptors` (blocks for other processes), `budget` (how much
//! memory it may take), `solid` (how large one allocation is), `pinned` (page-locked memory of the host), `host_room` (how much of
//! that the host has left), `learning` (a thread that makes plans while the program runs), `folder` (where plans lie), `fork`
//! (children of the process), `messages` (what the user is told), `order` (the stand-in CUDA hears of blocks).
//! Programs that give PyTorch an allocator by name get [`pluggable`]'s, which brings a fallback of its own.

mod arenas;
mod budget;
mod counters;
mod descriptors;
mod devices;
mod exports;
mod fault;
mod folder;
mod fork;
mod host_room;
mod learning;
mod messages;
mod order;
mod pinned;
pub mod pluggable;
mod segments;
mod serving;
mod solid;
mod table;

pub use arenas::{
    arena, asleep, block_around, blocks, can_sleep, counters, forbid_waits, free, mapped, on_departure, prepare,
    record_stream, report, serve, sleep, sleeps_at, step_begin, trim, unprepare, wake,
};
pub use counters::{Counter, Counters, Durations, PoolCounters};
pub use devices::{ArenaReport, HOST, device_of};
pub use fault::contained;
pub use folder::plans;
pub use host_room::left as host_memory_left;
pub use learning::{JobOutcome, keep as keep_learned, keep_in, outcome, start as learn};
pub use messages::say;
pub use pinned::{PinnedCounters, counters as pinned_counters};
pub use solid::set as set_solid;
pub use stalloc_allocator::{Error as ArenaError, Moved};
pub use stalloc_caching::RivalsHeld;
pub use stalloc_learning::Finding;
pub use table::core;
