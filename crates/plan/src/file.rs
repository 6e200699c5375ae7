//! The plan's file.
//!
//! ```text
//! magic "STALPLAN"   8 bytes
//! format version     u32, little endian like the rest
//! CRC-32 of the body u32
//! body length        u64, bytes
//! body               zstd of the plan in postcard's format
//! ```
//!
//! A file is believed only when it is as long as it says and its checksum is right; what it holds is then bounded
//! ([`MAX_CONTENT`]) and every index in it is checked, so nobody who holds a [`Plan`] that was read meets one out of range.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use stalloc_common::{users_file, whole_file};
use thiserror::Error;

use crate::Plan;

const MAGIC: &[u8; 8] = b"STALPLAN";
const HEADER: usize = 24;

/// Version of the file format that this build writes, and the only one that it reads.
pub const FORMAT_VERSION: u32 = 3;

/// Most bytes of decompressed content. A plan of a million slots takes about 15 MB.
const MAX_CONTENT: u64 = 256 << 20;

/// Why a plan could not be read or written.
#[derive(Debug, Error)]
pub enum Error {
    /// The file system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is no usable plan.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        reason: Reason,
    },
    /// The plan cannot be written.
    #[error("the plan cannot be written: {0}")]
    Encode(String),
}

/// What is wrong with the bytes of a plan.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Reason {
    /// It does not begin like a plan.
    #[error("not a stalloc plan; make one with `stalloc plan TRACE -o FILE`")]
    Foreign,
    /// Another version of the format.
    #[error("plan format {0}, but this build reads format {FORMAT_VERSION}; make the plan again with this build")]
    Version(u32),
    /// Shorter or longer than it says.
    #[error(
        "the header promises {promised} bytes of content and {found} are there: the plan is damaged; make it again"
    )]
    Length {
        /// Bytes that the header promises.
        promised: u64,
        /// Bytes found.
        found: u64,
    },
    /// Its checksum is wrong.
    #[error("the checksum is {found:#010x} and should be {promised:#010x}: the plan is damaged; make it again")]
    Checksum {
        /// Checksum in the header.
        promised: u32,
        /// Checksum of the body.
        found: u32,
    },
    /// Larger than any plan.
    #[error("its content is over {MAX_CONTENT} bytes: not a plan of this program")]
    TooLarge,
    /// Content that is no plan.
    #[error("its content is no plan ({0}); make it again")]
    Content(String),
}

/// Whether a file that begins with these bytes is meant to be a plan.
pub fn is_plan(start: &[u8]) -> bool {
    start.starts_with(MAGIC)
}

/// The bytes of a plan's file.
pub fn encode(plan: &Plan) -> Result<Vec<u8>, Error> {
    let content = postcard::to_stdvec(plan).map_err(|error| Error::Encode(error.to_string()))?;
    if content.len() as u64 > MAX_CONTENT {
        return Err(Error::Encode(format!("its content is over {MAX_CONTENT} bytes")));
    }
    let body = zstd::bulk::compress(&content, 3).map_err(|error| Error::Encode(error.to_string()))?;
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
    bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&body);
    Ok(bytes)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// The plan in the bytes of a file.
pub fn decode(bytes: &[u8]) -> Result<Plan, Reason> {
    if !is_plan(bytes) {
        return Err(Reason::Foreign);
    }
    let short = || Reason::Length { promised: HEADER as u64, found: bytes.len() as u64 };
    let version = u32::from_le_bytes(array(bytes, 8).ok_or_else(short)?);
    if version != FORMAT_VERSION {
        return Err(Reason::Version(version));
    }
    let checksum = u32::from_le_bytes(array(bytes, 12).ok_or_else(short)?);
    let length = u64::from_le_bytes(array(bytes, 16).ok_or_else(short)?);
    let body = &bytes[HEADER..];
    if body.len() as u64 != length {
        return Err(Reason::Length { promised: length, found: body.len() as u64 });
    }
    let found = crc32fast::hash(body);
    if found != checksum {
        return Err(Reason::Checksum { promised: checksum, found });
    }
    let content = decompress(body)?;
    let (plan, rest) =
        postcard::take_from_bytes::<Plan>(&content).map_err(|error| Reason::Content(error.to_string()))?;
    if !rest.is_empty() {
        return Err(Reason::Content(format!("{} bytes are left over", rest.len())));
    }
    plan.validate().map_err(Reason::Content)?;
    Ok(plan)
}

fn decompress(body: &[u8]) -> Result<Vec<u8>, Reason> {
    let content = |error: io::Error| Reason::Content(error.to_string());
    let mut out = Vec::new();
    let decoder = zstd::stream::read::Decoder::with_buffer(body).map_err(content)?;
    decoder.take(MAX_CONTENT + 1).read_to_end(&mut out).map_err(content)?;
    if out.len() as u64 > MAX_CONTENT {
        return Err(Reason::TooLarge);
    }
    Ok(out)
}

/// Reads a plan.
pub fn read(path: &Path) -> Result<Plan, Error> {
    let io = |source| Error::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(io)?;
    // Compressed content is never longer than this; a device or a foreign giant is not read to its end.
    let limit = MAX_CONTENT + MAX_CONTENT / 8 + HEADER as u64;
    file.take(limit).read_to_end(&mut bytes).map_err(io)?;
    decode(&bytes).map_err(|reason| Error::File { path: path.to_owned(), reason })
}

/// Writes a plan as a whole or not at all: see [`whole_file`].
pub fn write(path: &Path, plan: &Plan) -> Result<(), Error> {
    let bytes = encode(plan)?;
    whole_file(path, |file| file.write_all(&bytes)).map_err(|source| Error::Io { path: path.to_owned(), source })
}

/// The same where the user has named the file: see [`users_file`].
pub fn write_as_named(path: &Path, plan: &Plan) -> Result<(), Error> {
    let bytes = encode(plan)?;
    users_file(path, |file| file.write_all(&bytes)).map_err(|source| Error::Io { path: path.to_owned(), source })
}
