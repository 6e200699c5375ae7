//! Our own trace file: compact, written as the program runs, readable up to its last flush.
//!
//! A file is the bytes of [`MAGIC`] and a row of chunks. A chunk is a head of 13 bytes (little-endian: length of
//! the payload, length of its content, CRC-32 of all but itself, kind) and the payload, its content compressed with zstd:
//!
//! | kind | content |
//! |---|---|
//! | `Device` | starts a trace: the device's number |
//! | `Strings`, `Stacks`, `Streams` | more interned strings, call stacks, stream handles; numbers follow on |
//! | `Initial` | requests that were live before the first event |
//! | `Events` | events, a column per field |
//! | `FirstState`, `LastState`, `Settings`, `Metadata` | what the name says |
//! | `End` | the trace is whole |
//!
//! Numbers are LEB128; where neighbours are alike, their difference is stored (zigzag). A killed program leaves a
//! file whose tail lacks its end, maybe in the middle of a chunk: it is read up to there, with a warning. A chunk
//! with a wrong checksum that is not the last is damage, and an error.

mod about;
mod content;
mod convert;
mod reader;
mod varint;
mod writer;

pub use about::{About, about};
pub use convert::write_recording;
pub(crate) use reader::read;
pub use writer::Writer;

/// What a file starts with: a byte that no text starts with, the name, and the version.
pub const MAGIC: [u8; 8] = *b"\x93stalloc";
/// Version of the format that is written; all from the first to this one are read. Version 2 has call stacks that were learned
/// after what they belong to, and that of a request that failed.
pub const VERSION: u8 = 2;
/// Versions that are read.
const VERSIONS: std::ops::RangeInclusive<u8> = 1..=VERSION;

/// Bytes of a chunk's head.
const HEAD: usize = 13;
/// No chunk is longer than this, compressed or not.
const LONGEST_CHUNK: u32 = 256 << 20;

/// Kinds of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum ChunkKind {
    Device = 1,
    Strings,
    Stacks,
    Streams,
    Initial,
    Events,
    FirstState,
    LastState,
    Settings,
    Metadata,
    End,
}

impl ChunkKind {
    const ALL: [ChunkKind; 11] = [
        ChunkKind::Device,
        ChunkKind::Strings,
        ChunkKind::Stacks,
        ChunkKind::Streams,
        ChunkKind::Initial,
        ChunkKind::Events,
        ChunkKind::FirstState,
        ChunkKind::LastState,
        ChunkKind::Settings,
        ChunkKind::Metadata,
        ChunkKind::End,
    ];

    fn of(byte: u8) -> Option<Self> {
        ChunkKind::ALL.into_iter().find(|&kind| kind as u8 == byte)
    }
}

/// The checksum of a chunk.
fn checksum(head: &[u8; HEAD], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&head[..8]);
    hasher.update(&head[12..]);
    hasher.update(payload);
    hasher.finalize()
}
