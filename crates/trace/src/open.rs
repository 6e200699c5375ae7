//! Opens a file of any known format.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use stalloc_common::settings;

use crate::error::{Budget, Fault, FilePosition, ReadError, Result};
use crate::input::{BUFFER, InputBytes, Progress};
use crate::instance::{self, InstanceTable};
use crate::model::{Recording, Trace};
use crate::state::MemoryState;
use crate::{error_text, format, paper_log, snapshot};

/// Memory that a reader may take by default, whatever the file claims, bytes. A snapshot of 1 GB takes 0.7 GB.
pub const MEMORY_LIMIT: u64 = 4 << 30;

/// More than any device has, and any job that a dry run is asked about needs, bytes.
const LARGEST_DEVICE: u64 = 64 << 40;

/// What a file holds.
#[derive(Clone, Debug)]
pub enum Input {
    /// What a program did with its memory.
    Recording(Recording),
    /// Buffers to place.
    Instance(InstanceTable),
}

/// Opens a file: a recording or an instance, recognised by content, plain or compressed (zstd, gzip).
///
/// `progress` is told how many bytes of the file have been read, and how many there are. At most about
/// [`MEMORY_LIMIT`] bytes of memory are taken, or the GiB that the environment variable `STALLOC_READ_GIB` says.
///
/// # Errors
/// If the file cannot be read or is damaged; the error names the file, the place and what to do.
pub fn open(path: &Path, progress: Progress<'_>) -> std::result::Result<Input, ReadError> {
    let limit = settings::READ_GIB.number::<u64>();
    open_within(path, progress, limit.map_or(MEMORY_LIMIT, |gib| gib.saturating_mul(1 << 30)))
}

/// As [`open`], taking at most about `limit` bytes of memory.
pub fn open_within(path: &Path, progress: Progress<'_>, limit: u64) -> std::result::Result<Input, ReadError> {
    let mut read = || {
        let file = File::open(path).map_err(|error| Fault::io(0, error))?;
        let metadata = file.metadata().map_err(|error| Fault::io(0, error))?;
        read(file, metadata.len(), progress, limit, device_in_name(path))
    };
    read().map_err(|fault| ReadError { path: path.to_owned(), fault })
}

/// As [`open_within`], from bytes in memory.
pub fn read_bytes(bytes: &[u8], limit: u64) -> Result<Input> {
    read(bytes, bytes.len() as u64, &mut |_, _| {}, limit, 0)
}

fn read<R: Read>(file: R, total: u64, progress: Progress<'_>, limit: u64, device: u32) -> Result<Input> {
    let input = read_any(file, total, progress, limit, device)?;
    if let Input::Recording(recording) = &input {
        recording.traces.iter().try_for_each(fits_a_device)?;
    }
    Ok(input)
}

/// Models of allocators keep a record of each page, so that a recording of sizes that no device has would take all memory.
fn fits_a_device(trace: &Trace) -> Result<()> {
    let states = [&trace.initial, &trace.last].into_iter().flatten();
    let reserved = |state: &MemoryState| state.segments.iter().fold(0u64, |sum, one| sum.saturating_add(one.size));
    let held = states.map(reserved).max().unwrap_or(0).max(trace.peak_allocated());
    if held <= LARGEST_DEVICE {
        return Ok(());
    }
    let problem = format!("device {} holds {} TiB at once, more than any has", trace.device, held >> 40);
    Err(Fault::damaged(FilePosition::File, problem))
}

fn read_any<R: Read>(file: R, total: u64, progress: Progress<'_>, limit: u64, device: u32) -> Result<Input> {
    let mut input = InputBytes::open(file, total, progress)?;
    let budget = Budget::new(limit);
    // A compressed file may break off in what is looked at here; only our own format makes sense up to there.
    let cut = input.fill(HEAD).err();
    let head = input.peek();
    if let Some(fault) = cut
        && !(fault.is_cut_off() && head.starts_with(&format::MAGIC))
    {
        return Err(fault);
    }
    match head {
        [] => Err(Fault::new(FilePosition::File, "the file is empty", "name a file that holds a trace")),
        [0x80, 2..=5, ..] => Ok(Input::Recording(snapshot::read(&mut input, budget)?)),
        _ if head.starts_with(&format::MAGIC) => Ok(Input::Recording(format::read(&mut input, budget)?)),
        [b'P', b'K', 3, 4, ..] => {
            Err(Fault::new(FilePosition::File, "a zip archive, such as torch.save writes", SNAPSHOT))
        }
        _ => {
            let line = first_line(head);
            if instance::is_header(line) {
                Ok(Input::Instance(instance::read(&mut input, budget)?))
            } else if paper_log::is_line(line) {
                Ok(Input::Recording(paper_log::read(&mut input, budget, device)?))
            } else if let Some(recording) = text_of(&mut input) {
                Ok(Input::Recording(recording))
            } else {
                let (what, instead) = foreign(input.peek());
                Err(Fault::new(FilePosition::File, what, instead))
            }
        }
    }
}

/// A log with the text of PyTorch's error in its first part, or that text alone.
fn text_of(input: &mut InputBytes<'_>) -> Option<Recording> {
    input.fill(BUFFER).ok()?;
    error_text::read(input.peek())
}

/// What a file is that holds no sequence of requests, and what to do instead.
fn foreign(head: &[u8]) -> (&'static str, &'static str) {
    match head.trim_ascii_start() {
        [b'{' | b'[', ..] => (
            "JSON, which is not read: a profiler's does not say where blocks lie, and a snapshot is a pickle",
            SNAPSHOT,
        ),
        [b'(', b'd' | b'l', ..] => ("a pickle of protocol 0", SNAPSHOT),
        text if ERRORS.iter().any(|error| text.windows(error.len()).any(|part| part == *error)) => (
            "an error without figures, such as a library's",
            "run the job as `stalloc run -- COMMAND`, which writes a report when memory runs out",
        ),
        _ => ("no known format", KNOWN),
    }
}

/// The first line that is neither blank nor a comment.
fn first_line(head: &[u8]) -> &[u8] {
    let head = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head);
    let mut lines = head.split(|&b| b == b'\n').map(<[u8]>::trim_ascii);
    lines.find(|line| !line.is_empty() && !line.starts_with(b"#")).unwrap_or_default()
}

/// The device that a log's name says: `mem_log_dev3.txt`.
fn device_in_name(path: &Path) -> u32 {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let digits = name.split_once("_dev").map_or("", |(_, rest)| rest);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(0)
}

/// How much of a file is looked at to recognise it; comments may come first.
const HEAD: usize = 64 << 10;

/// What errors say that memory ran out where PyTorch's allocator did not fail.
const ERRORS: [&[u8]; 2] = [b"out of memory", b"_ALLOC_FAILED"];

const SNAPSHOT: &str = "write a snapshot with torch.cuda.memory._dump_snapshot(\"memory.pickle\")";

const KNOWN: &str = "known are: a stalloc trace, a PyTorch memory snapshot, a mem_log of the paper's artifact, a log with PyTorch's out-of-memory error, \
                     and a CSV with the columns id,lower,upper,size; any of them plain, .zst or .gz";
