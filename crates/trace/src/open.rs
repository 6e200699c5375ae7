//! Opens a file of any known format.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::{Budget, Fault, Place, ReadError, Result};
use crate::input::{Input as Source, Progress};
use crate::model::Recording;
use crate::snapshot;

/// Memory that a reader may take by default, whatever the file claims, bytes. A snapshot of 1 GB takes well under
/// 2 GB.
pub const MEMORY_LIMIT: u64 = 8 << 30;

/// What a file holds.
#[derive(Clone, Debug)]
pub enum Input {
    /// What a program did with its memory.
    Recording(Recording),
}

/// Opens a file: a recording or an instance, recognised by content, plain or compressed (zstd, gzip).
///
/// `progress` is told how many bytes of the file have been read, and how many there are.
///
/// # Errors
/// If the file cannot be read or makes no sense; the error names the file, the place and what to do.
pub fn open(path: &Path, progress: Progress<'_>) -> std::result::Result<Input, ReadError> {
    open_within(path, progress, MEMORY_LIMIT)
}

/// As [`open`], taking at most about `limit` bytes of memory.
///
/// # Errors
/// As [`open`].
pub fn open_within(path: &Path, progress: Progress<'_>, limit: u64) -> std::result::Result<Input, ReadError> {
    let mut read = || {
        let file = File::open(path).map_err(|error| Fault::io(0, error))?;
        let metadata = file.metadata().map_err(|error| Fault::io(0, error))?;
        read(file, metadata.len(), progress, limit)
    };
    read().map_err(|fault| ReadError { path: path.to_owned(), fault })
}

/// As [`open_within`], from bytes in memory.
///
/// # Errors
/// As [`open`], without a path.
pub fn read_bytes(bytes: &[u8], limit: u64) -> Result<Input> {
    read(bytes, bytes.len() as u64, &mut |_, _| {}, limit)
}

fn read<R: Read>(file: R, total: u64, progress: Progress<'_>, limit: u64) -> Result<Input> {
    let mut input = Source::open(file, total, progress)?;
    let budget = Budget::new(limit);
    let head = input.fill(4096)?;
    match head {
        [] => Err(Fault::new(Place::File, "the file is empty", "name a file that holds a trace")),
        [0x80, 2..=5, ..] => Ok(Input::Recording(snapshot::read(&mut input, budget)?)),
        _ => Err(Fault::new(Place::File, "no known format", KNOWN)),
    }
}

const KNOWN: &str = "known are: a stalloc trace, a PyTorch memory snapshot, a mem_log of the paper's artifact, \
                     and a CSV with the columns id,lower,upper,size; any of them plain, .zst or .gz";
