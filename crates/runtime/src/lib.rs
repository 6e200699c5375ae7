//! The planned arenas of one process, and the C interface that PyTorch's shims call.
//!
//! A process has an arena for each GPU and one for host memory. An arena is given a plan ([`prepare`]), opens its arena
//! when the program first asks it for memory (only then is the device awake), and from then on serves all that fits; a plan
//! without slots makes it the open arena. What it cannot serve is the caller's own fallback's: the functions here say
//! `None`, never an error.
//!
//! The rooms: `folder` (where plans lie), `locked_arena` (one device's arena and its lock), `serving` (an arena, whatever
//! device it is on), `counters` (its share of PyTorch's statistics), `segments` (its share of snapshots), `registry` (which device an address belongs to), `arenas` (what a process asks of them),
//! `budget` (how much memory it may take), `solid` (how large one allocation is), `pinned` (page-locked memory of the host), `learning` (a thread that makes plans while the program runs), `host_room` (how much page-locked memory the host has left), `fork` (children
//! of the process), `messages` (what the user is told), `fault` (no panic reaches C), `table` (C), `order`
//! (the stand-in CUDA hears of blocks).
//! Programs that give PyTorch an allocator by name get [`pluggable`]'s, which brings a fallback of its own.

mod arenas;
mod budget;
mod counters;
mod descriptors;
mod exports;
mod fault;
mod folder;
mod fork;
mod host_room;
mod learning;
mod locked_arena;
mod messages;
mod order;
mod pinned;
pub mod pluggable;
mod registry;
mod segments;
mod serving;
mod solid;
mod table;

pub use arenas::{
    allow_peer, arena, asleep, block_around, blocks, can_sleep, counters, fallback_holds, forbid_waits, free, is_solid,
    mapped, memory_changes, on_departure, pool_begin, pool_end, pool_parts, pool_restore, pool_serve, prepare,
    record_stream, report, serve, set_capturing, set_limit, sleep, sleeps_at, step_begin, trim, unprepare, wake,
};
pub use counters::{Counter, Counters, Durations, PoolCounters};
pub use fault::contained;
pub use folder::plans;
pub use host_room::left as host_memory_left;
pub use learning::{JobOutcome, keep as keep_learned, keep_in, outcome, start as learn};
pub use locked_arena::ArenaReport;
pub use messages::say;
pub use pinned::{PinnedCounters, counters as pinned_counters};
pub use registry::{HOST, device_of};
pub use solid::set as set_solid;
pub use stalloc_allocator::{Error as ArenaError, Moved};
pub use stalloc_caching::RivalsHeld;
pub use stalloc_learning::Finding;
pub use table::{
    Core, CoreArena, CoreBlock, CoreExport, CorePart, CorePoolPart, CoreRange, VERSION as CORE_VERSION, core,
};
