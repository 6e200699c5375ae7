//! Writes a trace while the program runs.

use std::io::{self, Write};

use rustc_hash::FxHashMap;
use zstd::bulk::Compressor;

use super::content::{EventColumns, kind, put_settings, put_state};
use super::varint::{put, put_delta, put_text};
use super::{ChunkKind, HEAD, LONGEST_CHUNK, MAGIC, VERSION, checksum};
use crate::ids::{RequestId, StackId, StringId};
use crate::model::{Frame, Mark, SegmentAction};
use crate::raw::{RawEvent, Whose};
use crate::state::{AllocatorSettings, MemoryState};

/// Events are written out after this many even if nobody asks for it.
const EVENTS_PER_CHUNK: usize = 1 << 16;
/// Fast, and within a few percent of the default level on columns of small numbers.
const COMPRESSION: i32 = 1;

/// Writes one device's trace, event by event.
///
/// An event costs some tens of nanoseconds until a chunk is full or [`flush`](Writer::flush) is called; what was
/// flushed survives a killed process. Strings and stacks are interned: the same text gives the same id, so that
/// callers need not keep tables of their own.
///
/// [`finish`](Writer::finish) marks the trace as whole. A writer that is dropped flushes, without that mark.
pub struct Writer<W: Write> {
    /// `None` once finished.
    out: Option<W>,
    columns: EventColumns,
    /// Tables that grew since the last chunk, and how many entries they got.
    new_strings: Vec<u8>,
    new_stacks: Vec<u8>,
    new_streams: Vec<u8>,
    new_initial: Vec<u8>,
    strings: FxHashMap<String, StringId>,
    stacks: FxHashMap<Vec<Frame>, StackId>,
    streams: FxHashMap<u64, u64>,
    initial: u32,
    initial_address: u64,
    last_time: u64,
    last_address: u64,
    compressor: Compressor<'static>,
    chunk: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// A writer of the trace of `device`. `out` is written in large pieces: it needs no buffer.
    pub fn new(mut out: W, device: u32) -> io::Result<Self> {
        let mut magic = MAGIC.to_vec();
        magic.push(VERSION);
        out.write_all(&magic)?;
        Writer::next_device(out, device)
    }

    /// A writer of a further device's trace into a file that other writers finished theirs in.
    pub(super) fn next_device(out: W, device: u32) -> io::Result<Self> {
        let mut writer = Writer {
            out: Some(out),
            columns: EventColumns::default(),
            new_strings: Vec::new(),
            new_stacks: Vec::new(),
            new_streams: Vec::new(),
            new_initial: Vec::new(),
            strings: FxHashMap::default(),
            stacks: FxHashMap::default(),
            streams: FxHashMap::default(),
            initial: 0,
            initial_address: 0,
            last_time: 0,
            last_address: 0,
            compressor: Compressor::new(COMPRESSION)?,
            chunk: Vec::new(),
        };
        let mut content = Vec::new();
        put(&mut content, device.into());
        writer.write_chunk(ChunkKind::Device, &content)?;
        Ok(writer)
    }

    /// The id of a string, the same for equal strings.
    pub fn string(&mut self, text: &str) -> StringId {
        if let Some(&id) = self.strings.get(text) {
            return id;
        }
        let id = StringId(self.strings.len() as u32);
        self.strings.insert(text.to_owned(), id);
        put_text(&mut self.new_strings, text);
        id
    }

    /// The id of a call stack (innermost frame first), the same for equal ones.
    pub fn stack(&mut self, frames: &[Frame]) -> StackId {
        if frames.is_empty() {
            return StackId::NONE;
        }
        if let Some(&id) = self.stacks.get(frames) {
            return id;
        }
        let id = StackId(self.stacks.len() as u32 + 1);
        self.stacks.insert(frames.to_vec(), id);
        let out = &mut self.new_stacks;
        put(out, frames.len() as u64);
        for frame in frames {
            put(out, frame.file.0.into());
            put(out, frame.function.0.into());
            put(out, frame.line.into());
        }
        id
    }

    /// The number of a stream, by its handle; a request or segment event with a new handle does this by itself.
    pub(super) fn stream(&mut self, handle: u64) -> u64 {
        let next = self.streams.len() as u64;
        let new = &mut self.new_streams;
        *self.streams.entry(handle).or_insert_with(|| {
            put(new, handle);
            next
        })
    }

    /// Adds a request that was live before the first event; `pending` if the program had given it back already.
    /// All of them come before the first event.
    pub fn push_initial(&mut self, address: u64, size: u64, stream: u64, stack: StackId, pending: bool) -> RequestId {
        let stream = self.stream(stream);
        let out = &mut self.new_initial;
        put_delta(out, address, &mut self.initial_address);
        put(out, size);
        put(out, stream << 1 | u64::from(pending));
        put(out, stack.0.into());
        self.initial += 1;
        RequestId(self.initial - 1)
    }

    /// Adds an event, at `time_us` microseconds of any clock. Size and stream of frees are not kept.
    ///
    /// # Errors
    /// If a chunk was full and could not be written.
    pub fn push(&mut self, event: &RawEvent, time_us: Option<u64>) -> io::Result<()> {
        use kind::*;
        let kind = match *event {
            RawEvent::Alloc { address, size, stream, stack } => {
                self.range(address, size, stream);
                put(&mut self.columns.stacks, stack.0.into());
                ALLOC
            }
            RawEvent::FreeRequested { address, .. } => self.address(address, FREE_REQUESTED),
            RawEvent::FreeCompleted { address, .. } => self.address(address, FREE_COMPLETED),
            RawEvent::Segment { action, address, size, stream } => {
                self.range(address, size, stream);
                match action {
                    SegmentAction::Alloc => SEGMENT_ALLOC,
                    SegmentAction::Free => SEGMENT_FREE,
                    SegmentAction::Map => SEGMENT_MAP,
                    SegmentAction::Unmap => SEGMENT_UNMAP,
                }
            }
            RawEvent::OutOfMemory { size, device_free, stack } => {
                put(&mut self.columns.sizes, size);
                if stack == StackId::NONE {
                    self.extra(device_free, OUT_OF_MEMORY)
                } else {
                    put(&mut self.columns.stacks, stack.0.into());
                    self.extra(device_free, OUT_OF_MEMORY_AT)
                }
            }
            RawEvent::Snapshot => SNAPSHOT,
            RawEvent::Mark(ref mark) => self.mark(mark),
            RawEvent::Stack { whose, stack } => {
                put(&mut self.columns.stacks, stack.0.into());
                match whose {
                    Whose::Nth(n) => self.extra(n, STACK_OF_NTH),
                    Whose::LivesAt(address) => self.address(address, STACK_AT),
                    Whose::Failed => STACK_OF_FAILED,
                }
            }
        };
        if let Some(time) = time_us {
            put_delta(&mut self.columns.times, time, &mut self.last_time);
            self.columns.kinds.push(kind | TIMED);
        } else {
            self.columns.kinds.push(kind);
        }
        if self.columns.kinds.len() >= EVENTS_PER_CHUNK { self.write_pending() } else { Ok(()) }
    }

    fn mark(&mut self, mark: &Mark) -> u8 {
        use kind::*;
        match *mark {
            Mark::StepBegin => STEP_BEGIN,
            Mark::StepEnd => STEP_END,
            Mark::Phase { kind, micro_batch } => {
                put(&mut self.columns.extra, micro_batch.into());
                self.extra(kind.0.into(), PHASE)
            }
            Mark::ModuleEnter(name) => self.extra(name.0.into(), MODULE_ENTER),
            Mark::ModuleExit(name) => self.extra(name.0.into(), MODULE_EXIT),
            Mark::AnnotationBegin(name) => self.extra(name.0.into(), ANNOTATION_BEGIN),
            Mark::AnnotationEnd(name) => self.extra(name.0.into(), ANNOTATION_END),
            Mark::HostRead { stack, bytes, answer } => {
                put(&mut self.columns.stacks, stack.0.into());
                put(&mut self.columns.extra, bytes);
                match answer {
                    Some(answer) => self.extra(answer.0.into(), ANSWERED_HOST_READ),
                    None => HOST_READ,
                }
            }
        }
    }

    fn extra(&mut self, number: u64, kind: u8) -> u8 {
        put(&mut self.columns.extra, number);
        kind
    }

    fn address(&mut self, address: u64, kind: u8) -> u8 {
        put_delta(&mut self.columns.addresses, address, &mut self.last_address);
        kind
    }

    fn range(&mut self, address: u64, size: u64, stream: u64) {
        let stream = self.stream(stream);
        put_delta(&mut self.columns.addresses, address, &mut self.last_address);
        put(&mut self.columns.sizes, size);
        put(&mut self.columns.streams, stream);
    }

    /// Says how the recorded allocator is set up.
    pub fn settings(&mut self, settings: &AllocatorSettings) -> io::Result<()> {
        let mut content = Vec::new();
        put_settings(&mut content, settings);
        self.write_pending()?;
        self.write_chunk(ChunkKind::Settings, &content)
    }

    /// Says something else, such as `torch` and its version; a later value of the same key replaces an earlier one.
    pub fn metadata(&mut self, key: &str, value: &str) -> io::Result<()> {
        let mut content = Vec::new();
        put_text(&mut content, key);
        put_text(&mut content, value);
        self.write_pending()?;
        self.write_chunk(ChunkKind::Metadata, &content)
    }

    /// Says what the allocator held before the first event. Its streams and requests are those of this writer.
    pub fn initial_state(&mut self, state: &MemoryState) -> io::Result<()> {
        self.state(ChunkKind::FirstState, state)
    }

    /// Says what the allocator held in the end. Its streams and requests are those of this writer.
    pub fn last_state(&mut self, state: &MemoryState) -> io::Result<()> {
        self.state(ChunkKind::LastState, state)
    }

    fn state(&mut self, kind: ChunkKind, state: &MemoryState) -> io::Result<()> {
        let mut content = Vec::new();
        put_state(&mut content, state);
        self.write_pending()?;
        self.write_chunk(kind, &content)
    }

    /// Hands everything to the operating system: it survives the process from here on.
    pub fn flush(&mut self) -> io::Result<()> {
        self.write_pending()?;
        self.out.as_mut().map_or(Ok(()), Write::flush)
    }

    /// Forgets what waits to be written. After a failed write this must come before anything else is written, which can
    /// then be no event: tables that later events refer to may be missing.
    pub fn forget_pending(&mut self) {
        for table in [&mut self.new_strings, &mut self.new_stacks, &mut self.new_streams, &mut self.new_initial] {
            table.clear();
        }
        self.columns.clear();
    }

    /// Marks the trace as whole: nothing may follow.
    pub fn end(&mut self) -> io::Result<()> {
        self.write_pending()?;
        self.write_chunk(ChunkKind::End, &[])?;
        self.flush()
    }

    /// What is written to; `None` once finished.
    pub fn get_mut(&mut self) -> Option<&mut W> {
        self.out.as_mut()
    }

    /// Marks the trace as whole and returns what it was written to.
    pub fn finish(mut self) -> io::Result<W> {
        self.end()?;
        self.out.take().ok_or_else(|| io::Error::other("finished already"))
    }

    /// Writes the tables that grew, then the events that refer to them.
    fn write_pending(&mut self) -> io::Result<()> {
        let tables = [
            (ChunkKind::Strings, &mut self.new_strings),
            (ChunkKind::Stacks, &mut self.new_stacks),
            (ChunkKind::Streams, &mut self.new_streams),
            (ChunkKind::Initial, &mut self.new_initial),
        ];
        let tables = tables.map(|(kind, table)| (kind, std::mem::take(table)));
        for (kind, table) in &tables {
            if !table.is_empty() {
                self.write_chunk(*kind, table)?;
            }
        }
        if self.columns.kinds.is_empty() {
            return Ok(());
        }
        let mut content = Vec::new();
        for column in self.columns.all() {
            put(&mut content, column.len() as u64);
        }
        for column in self.columns.all() {
            content.extend_from_slice(column);
        }
        self.columns.clear();
        (self.last_time, self.last_address) = (0, 0);
        self.write_chunk(ChunkKind::Events, &content)
    }

    fn write_chunk(&mut self, kind: ChunkKind, content: &[u8]) -> io::Result<()> {
        let Some(out) = &mut self.out else { return Ok(()) };
        let length = u32::try_from(content.len()).ok().filter(|&length| length <= LONGEST_CHUNK);
        let length = length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a chunk of over 256 MiB"))?;
        let compressed = self.compressor.compress(content)?;
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&(compressed.len() as u32).to_le_bytes());
        head[4..8].copy_from_slice(&length.to_le_bytes());
        head[12] = kind as u8;
        let sum = checksum(&head, &compressed);
        head[8..12].copy_from_slice(&sum.to_le_bytes());
        // One write: a chunk is there as a whole, or at the file's torn end.
        self.chunk.clear();
        self.chunk.extend_from_slice(&head);
        self.chunk.extend_from_slice(&compressed);
        out.write_all(&self.chunk)
    }
}

impl<W: Write> Drop for Writer<W> {
    fn drop(&mut self) {
        // Nobody is left to tell of an error; what was flushed is safe.
        drop(self.flush());
    }
}
