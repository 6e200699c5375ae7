//! The commands, a module each.

use clap::Subcommand;

use crate::error::{Error, Outcome};

/// What to do.
#[derive(Subcommand)]
pub enum Command {}

impl Command {
    /// Does it.
    pub fn run(self) -> Result<Outcome, Error> {
        match self {}
    }
}
