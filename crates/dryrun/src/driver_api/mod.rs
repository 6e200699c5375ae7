//! The CUDA driver: `cu*`. What the runtime has too is done by the same code.

mod context;
mod device;
mod entry_points;
mod memory;
mod modules;
mod streams;
mod virtual_memory;

use crate::errors::{Status, status};

/// The end of every function that can fail.
fn end<T>(result: Result<T, Status>) -> Status {
    status(result.map(drop))
}
