//! Reads our own format.

use super::content::{kind, settings, state};
use super::varint::{Malformed, VarintCursor};
use super::{ChunkKind, HEAD, LONGEST_CHUNK, MAGIC, VERSION, VERSIONS, checksum};
use crate::builder::TraceBuilder;
use crate::error::{Budget, Fault, FilePosition, Result};
use crate::ids::{StackId, StringId};
use crate::input::InputBytes;
use crate::model::{Format, Frame, Mark, Recording, SegmentAction, Trace};
use crate::raw::{RawEvent, Whose};
use crate::state::{MemoryState, RecordedBlock};

/// Memory that an event may take once it is read.
const EVENT_BYTES: u64 = 160;
/// Memory that an interned thing takes in addition to its content.
const ENTRY_BYTES: u64 = 96;

/// Reads a file.
pub(crate) fn read(input: &mut InputBytes<'_>, budget: Budget) -> Result<Recording> {
    let head = input.array::<8>()?;
    debug_assert_eq!(head, MAGIC);
    let [version] = input.array()?;
    if !VERSIONS.contains(&version) {
        let problem = format!("a stalloc trace of version {version}; this program reads versions 1 to {VERSION}");
        return Err(Fault::new(FilePosition::File, problem, "record it again, or use the program that wrote it"));
    }
    let mut reader = Reader {
        budget,
        current: None,
        torn: false,
        recording: Recording { format: Format::Stalloc, traces: Vec::new(), warnings: Vec::new() },
    };
    loop {
        let at = input.position();
        match next_chunk(input)? {
            NextChunk::Whole(kind, content_length, payload) => {
                let malformed = |_| Fault::damaged(FilePosition::Byte(at), "a chunk holds an impossible value");
                reader.budget.charge(u64::from(content_length))?;
                // The length is bounded, and known to be what the writer wrote: the checksum covers it.
                let content = zstd::bulk::decompress(&payload, content_length as usize).map_err(|error| {
                    Fault::damaged(FilePosition::Byte(at), format!("a chunk cannot be decompressed: {error}"))
                })?;
                reader.chunk(kind, &content, at)?.map_err(malformed)?;
            }
            NextChunk::Unknown(byte) => {
                let problem = format!("a chunk of unknown kind {byte}");
                return Err(Fault::damaged(FilePosition::Byte(at), problem));
            }
            NextChunk::Torn => {
                reader.recording.warnings.push(format!(
                    "The file ends too early, in what begins at byte {at}: the recording was cut off there."
                ));
                reader.torn = true;
                break;
            }
            NextChunk::None => break,
        }
    }
    reader.end_of_device();
    Ok(reader.recording)
}

enum NextChunk {
    Whole(ChunkKind, u32, Vec<u8>),
    Unknown(u8),
    /// The last chunk, incomplete.
    Torn,
    None,
}

fn next_chunk(input: &mut InputBytes<'_>) -> Result<NextChunk> {
    let at = input.position();
    let head = match input.fill(HEAD) {
        Ok(bytes) => bytes.first_chunk::<HEAD>().copied(),
        Err(fault) if fault.is_cut_off() => return Ok(NextChunk::Torn),
        Err(fault) => return Err(fault),
    };
    let Some(head) = head else {
        return Ok(if input.buffered() == 0 { NextChunk::None } else { NextChunk::Torn });
    };
    input.consume(HEAD);
    let word = |from: usize| u32::from_le_bytes([head[from], head[from + 1], head[from + 2], head[from + 3]]);
    let (length, content_length, sum) = (word(0), word(4), word(8));
    let mut payload = Vec::new();
    if length <= LONGEST_CHUNK && content_length <= LONGEST_CHUNK {
        match input.take(length.into(), &mut payload) {
            Ok(()) => {}
            Err(fault) if fault.source.is_none() || fault.is_cut_off() => return Ok(NextChunk::Torn),
            Err(fault) => return Err(fault),
        }
        if checksum(&head, &payload) == sum {
            return Ok(match ChunkKind::of(head[12]) {
                Some(kind) => NextChunk::Whole(kind, content_length, payload),
                None => NextChunk::Unknown(head[12]),
            });
        }
    }
    // A machine that went down may leave a last chunk of the right length with wrong bytes, or zeros for ever.
    if only_zeros_follow(input)? {
        return Ok(NextChunk::Torn);
    }
    Err(Fault::damaged(FilePosition::Byte(at), "a chunk does not match its checksum"))
}

fn only_zeros_follow(input: &mut InputBytes<'_>) -> Result<bool> {
    loop {
        let bytes = match input.fill(1) {
            Err(fault) if fault.is_cut_off() => return Ok(true),
            bytes => bytes?,
        };
        let (count, zeros) = (bytes.len(), bytes.iter().all(|&b| b == 0));
        if count == 0 || !zeros {
            return Ok(zeros);
        }
        input.consume(count);
    }
}

struct Reader {
    budget: Budget,
    current: Option<Current>,
    /// Whether the file's end is missing.
    torn: bool,
    recording: Recording,
}

/// The trace that is being read.
struct Current {
    builder: TraceBuilder,
    /// What does not go through the builder.
    rest: Trace,
    strings: u32,
    stacks: u32,
    streams: Vec<u64>,
    /// Frees of unknown addresses.
    dropped: u64,
    /// Whether its end was seen.
    whole: bool,
}

impl Reader {
    fn end_of_device(&mut self) {
        let Some(current) = self.current.take() else { return };
        let Trace { device, initial, last, settings, metadata, .. } = current.rest;
        if current.dropped > 0 {
            let dropped = current.dropped;
            self.recording
                .warnings
                .push(format!("Device {device}: {dropped} frees of unknown addresses were dropped."));
        }
        if !current.whole && !self.torn {
            self.recording.warnings.push(format!(
                "The recording of device {device} was not finished (was the program killed?): it holds what was written until then."
            ));
        }
        let mut trace = current.builder.finish();
        trace.is_cut = !current.whole;
        (trace.initial, trace.last, trace.settings, trace.metadata) = (initial, last, settings, metadata);
        self.recording.traces.push(trace);
    }

    fn chunk(&mut self, kind: ChunkKind, content: &[u8], at: u64) -> Result<std::result::Result<(), Malformed>> {
        let mut cursor = VarintCursor::new(content);
        if kind == ChunkKind::Device {
            self.end_of_device();
            self.budget.charge(4096)?;
            let Ok(device) = cursor.small() else { return Ok(Err(Malformed)) };
            self.current = Some(Current {
                builder: TraceBuilder::new(device),
                rest: Trace { device, ..Trace::default() },
                strings: 0,
                stacks: 1,
                streams: Vec::new(),
                dropped: 0,
                whole: false,
            });
            return Ok(Ok(()));
        }
        let Some(current) = &mut self.current else {
            return Err(Fault::damaged(FilePosition::Byte(at), "a chunk before any device"));
        };
        if current.whole {
            return Err(Fault::damaged(FilePosition::Byte(at), "a chunk after the end of its trace"));
        }
        // What a chunk expands to is bounded by the things in it, each of a byte at least.
        let bytes_each = match kind {
            ChunkKind::Events => 0,
            _ => ENTRY_BYTES,
        };
        self.budget.charge(content.len() as u64 * bytes_each)?;
        current.chunk(kind, &mut cursor, &mut self.budget)
    }
}

type Parsed<T> = std::result::Result<T, Malformed>;

impl Current {
    fn chunk(&mut self, kind: ChunkKind, cursor: &mut VarintCursor<'_>, budget: &mut Budget) -> Result<Parsed<()>> {
        Ok(match kind {
            ChunkKind::Device => Err(Malformed),
            ChunkKind::Strings => self.strings(cursor),
            ChunkKind::Stacks => self.stacks(cursor),
            ChunkKind::Streams => self.streams(cursor),
            ChunkKind::Initial => self.initial(cursor),
            ChunkKind::Events => return self.events(cursor, budget),
            ChunkKind::FirstState => self.state(cursor).map(|state| self.rest.initial = Some(state)),
            ChunkKind::LastState => self.state(cursor).map(|state| self.rest.last = Some(state)),
            ChunkKind::Settings => settings(cursor).map(|settings| self.rest.settings = Some(settings)),
            ChunkKind::Metadata => self.metadata(cursor),
            ChunkKind::End => {
                self.whole = true;
                Ok(())
            }
        })
    }

    fn strings(&mut self, cursor: &mut VarintCursor<'_>) -> Parsed<()> {
        while !cursor.is_empty() {
            // Ids are counted, so a string that comes twice would shift those after it.
            if self.builder.string(cursor.text()?) != StringId(self.strings) {
                return Err(Malformed);
            }
            self.strings += 1;
        }
        Ok(())
    }

    fn string(&self, cursor: &mut VarintCursor<'_>) -> Parsed<StringId> {
        let id = cursor.small()?;
        if id < self.strings { Ok(StringId(id)) } else { Err(Malformed) }
    }

    fn stack(&self, cursor: &mut VarintCursor<'_>) -> Parsed<StackId> {
        let id = cursor.small()?;
        if id < self.stacks { Ok(StackId(id)) } else { Err(Malformed) }
    }

    fn stream(&self, id: u64) -> Parsed<u64> {
        usize::try_from(id).ok().and_then(|id| self.streams.get(id)).copied().ok_or(Malformed)
    }

    fn stacks(&mut self, cursor: &mut VarintCursor<'_>) -> Parsed<()> {
        let mut frames = Vec::new();
        while !cursor.is_empty() {
            frames.clear();
            for _ in 0..cursor.length()? {
                let (file, function) = (self.string(cursor)?, self.string(cursor)?);
                frames.push(Frame { file, function, line: cursor.small()? });
            }
            if self.builder.stack(&frames) != StackId(self.stacks) {
                return Err(Malformed);
            }
            self.stacks += 1;
        }
        Ok(())
    }

    fn streams(&mut self, cursor: &mut VarintCursor<'_>) -> Parsed<()> {
        while !cursor.is_empty() {
            let handle = cursor.number()?;
            if self.builder.stream(handle).0 as usize != self.streams.len() {
                return Err(Malformed);
            }
            self.streams.push(handle);
        }
        Ok(())
    }

    fn initial(&mut self, cursor: &mut VarintCursor<'_>) -> Parsed<()> {
        let mut address = 0;
        while !cursor.is_empty() {
            cursor.delta(&mut address)?;
            let size = cursor.number()?;
            let stream = cursor.number()?;
            let stack = self.stack(cursor)?;
            address.checked_add(size).ok_or(Malformed)?;
            self.builder.push_initial(address, size, self.stream(stream >> 1)?, stack, stream & 1 != 0);
        }
        Ok(())
    }

    /// A state whose segments and blocks lie in order, side by side, and refer to what there is.
    fn state(&self, cursor: &mut VarintCursor<'_>) -> Parsed<MemoryState> {
        let mut state = state(cursor)?;
        let mut at = 0;
        for segment in &mut state.segments {
            let end = segment.address + segment.size;
            let known = |block: &RecordedBlock| {
                block.request.is_none_or(|id| id.index() < self.builder.requests()) && block.stack.0 < self.stacks
            };
            let mut inside = segment.address;
            for block in &segment.blocks {
                if block.address < inside || !known(block) {
                    return Err(Malformed);
                }
                inside = block.address + block.size;
            }
            if segment.address < at || inside > end || segment.stream.0 as usize >= self.streams.len() {
                return Err(Malformed);
            }
            at = end;
            segment.fill_gaps();
        }
        Ok(state)
    }

    fn metadata(&mut self, cursor: &mut VarintCursor<'_>) -> Parsed<()> {
        let (key, value) = (cursor.text()?, cursor.text()?);
        self.rest.metadata.insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    fn events(&mut self, cursor: &mut VarintCursor<'_>, budget: &mut Budget) -> Result<Parsed<()>> {
        let columns = match columns(cursor) {
            Ok(columns) => columns,
            Err(malformed) => return Ok(Err(malformed)),
        };
        budget.charge(columns[0].len() as u64 * EVENT_BYTES)?;
        Ok(self.play(columns))
    }

    fn play(&mut self, columns: [&[u8]; 7]) -> Parsed<()> {
        let [kinds, times, addresses, sizes, streams, stacks, extra] = columns;
        let [mut times, mut addresses, mut sizes] = [times, addresses, sizes].map(VarintCursor::new);
        let [mut streams, mut stacks, mut extra] = [streams, stacks, extra].map(VarintCursor::new);
        let (mut last_time, mut last_address) = (0, 0);
        for &byte in kinds {
            let kind = byte & !kind::TIMED;
            let event = match kind {
                kind::ALLOC | kind::SEGMENT_ALLOC..=kind::SEGMENT_UNMAP => {
                    let address = addresses.delta(&mut last_address)?;
                    let size = sizes.number()?;
                    let stream = self.stream(streams.number()?)?;
                    address.checked_add(size).ok_or(Malformed)?;
                    let segment = |action| RawEvent::Segment { action, address, size, stream };
                    match kind {
                        kind::ALLOC => RawEvent::Alloc { address, size, stream, stack: self.stack(&mut stacks)? },
                        kind::SEGMENT_ALLOC => segment(SegmentAction::Alloc),
                        kind::SEGMENT_FREE => segment(SegmentAction::Free),
                        kind::SEGMENT_MAP => segment(SegmentAction::Map),
                        _ => segment(SegmentAction::Unmap),
                    }
                }
                kind::FREE_REQUESTED => {
                    RawEvent::FreeRequested { address: addresses.delta(&mut last_address)?, size: 0, stream: 0 }
                }
                kind::FREE_COMPLETED => {
                    RawEvent::FreeCompleted { address: addresses.delta(&mut last_address)?, size: 0, stream: 0 }
                }
                kind::OUT_OF_MEMORY | kind::OUT_OF_MEMORY_AT => RawEvent::OutOfMemory {
                    size: sizes.number()?,
                    device_free: extra.number()?,
                    stack: if kind == kind::OUT_OF_MEMORY { StackId::NONE } else { self.stack(&mut stacks)? },
                },
                kind::SNAPSHOT => RawEvent::Snapshot,
                kind::STACK_OF_NTH | kind::STACK_AT | kind::STACK_OF_FAILED => RawEvent::Stack {
                    whose: match kind {
                        kind::STACK_OF_NTH => Whose::Nth(extra.number()?),
                        kind::STACK_AT => Whose::LivesAt(addresses.delta(&mut last_address)?),
                        _ => Whose::Failed,
                    },
                    stack: self.stack(&mut stacks)?,
                },
                _ => RawEvent::Mark(self.mark(kind, &mut stacks, &mut extra)?),
            };
            let time = if byte & kind::TIMED != 0 { Some(times.delta(&mut last_time)?) } else { None };
            let told_later = matches!(event, RawEvent::Stack { .. });
            self.dropped += u64::from(!self.builder.push(event, time) && !told_later);
        }
        Ok(())
    }

    fn mark(&self, kind: u8, stacks: &mut VarintCursor<'_>, extra: &mut VarintCursor<'_>) -> Parsed<Mark> {
        Ok(match kind {
            kind::STEP_BEGIN => Mark::StepBegin,
            kind::STEP_END => Mark::StepEnd,
            kind::PHASE => {
                let micro_batch = extra.small()?;
                Mark::Phase { kind: self.string(extra)?, micro_batch }
            }
            kind::MODULE_ENTER => Mark::ModuleEnter(self.string(extra)?),
            kind::MODULE_EXIT => Mark::ModuleExit(self.string(extra)?),
            kind::ANNOTATION_BEGIN => Mark::AnnotationBegin(self.string(extra)?),
            kind::ANNOTATION_END => Mark::AnnotationEnd(self.string(extra)?),
            kind::HOST_READ => Mark::HostRead { stack: self.stack(stacks)?, bytes: extra.number()?, answer: None },
            kind::ANSWERED_HOST_READ => {
                Mark::HostRead { stack: self.stack(stacks)?, bytes: extra.number()?, answer: Some(self.string(extra)?) }
            }
            _ => return Err(Malformed),
        })
    }
}

fn columns<'a>(cursor: &mut VarintCursor<'a>) -> Parsed<[&'a [u8]; 7]> {
    let mut lengths = [0; 7];
    for length in &mut lengths {
        *length = usize::try_from(cursor.number()?).map_err(|_| Malformed)?;
    }
    let mut columns = [&[][..]; 7];
    for (column, length) in columns.iter_mut().zip(lengths) {
        *column = cursor.bytes(length)?;
    }
    Ok(columns)
}
