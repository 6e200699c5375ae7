//! The installed cuDNN, asked with no GPU.
//!
//! From 9.8 on, cuDNN chooses engines and says their workspaces from a description of a GPU alone ("deviceless ahead-of-time
//! compilation"). The stand-in asks it in a process of its own ([`serve`]), so that neither a crash of that library nor the symbols that
//! the stand-in puts in its way can reach the dry run. Any failure is an error of [`Client::call`], after which there is no client.

mod client;
mod library;
mod message;
mod server;

pub use client::Client;
pub use message::{Call, Reply};
pub use server::serve;

/// The name under which the `stalloc` command serves.
pub const COMMAND: &str = "stalloc-cudnn";

/// An answer takes milliseconds; a library that says nothing for so long has stopped, seconds. The first answers on a loaded machine
/// took 3 s.
const LONGEST_WAIT: u32 = 120;

/// The first version that answers with no device.
pub const FIRST_VERSION: usize = 90_800;
