//! The planned arenas of one process, and the C interface that PyTorch's shims call.
//!
//! A process has a place for each GPU and one for host memory. A place is given a plan ([`prepare`]), opens its arena
//! when the program first asks it for memory (only then is the device awake), and from then on serves what the plan knows.
//! What it does not serve is the caller's own fallback's: the functions here say `None`, never an error.
//!
//! Three rooms: `place` (one device's arena and its lock), `places` (which device an address belongs to), `table` (C).

mod place;
mod places;
mod table;

pub use place::{Report, Serving};
pub use places::{
    HOST, arena, block_around, blocks, fallback_reserved, free, on_departure, prepare, record_stream, report, serve,
    set_capturing, step_begin, trim,
};
pub use table::{Core, CoreArena, CoreBlock, core};
