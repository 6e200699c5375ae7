//! Trace files, one per device.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use stalloc_trace::{Frame, Mark, RawEvent, StackId, StringId};

use stalloc_trace::format::Writer;

use crate::chunks::Chunks;
use crate::claim::{create, settle};
use crate::log::Timed;
use crate::names::Names;
use crate::process::Process;

/// A file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
pub struct Error {
    path: PathBuf,
    source: io::Error,
}

/// The files of a process.
pub struct Files {
    directory: PathBuf,
    process: Process,
    /// By device; `None` where no file could be made.
    open: BTreeMap<u32, Option<OpenTrace>>,
    /// Events that no file holds.
    lost: u64,
}

struct OpenTrace {
    path: PathBuf,
    writer: Writer<Chunks>,
    /// The file's ids of the process's strings and stacks.
    strings: FxHashMap<StringId, StringId>,
    stacks: FxHashMap<StackId, StackId>,
    /// Bytes before the last events that were written, and how many these are.
    last: (u64, u64),
    /// Events that came since the file could not be written; 0: it still can.
    lost: u64,
}

impl Files {
    /// Files in `directory`, which exists. None is made yet.
    pub fn new(directory: PathBuf, process: Process) -> Self {
        Files { directory, process, open: BTreeMap::new(), lost: 0 }
    }

    /// Adds what files say of the process that are made from now on.
    pub fn say(&mut self, key: &str, value: &str) {
        self.process.metadata.insert(key.to_owned(), value.to_owned());
    }

    /// Events that could not be written.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Writes events of several devices and hands them to the operating system. From the first failure on, a device's
    /// events are only counted: those after a gap would be of unknown requests.
    ///
    /// # Errors
    /// The first time that a device's file cannot be written.
    pub fn write(&mut self, events: Vec<(u32, Vec<Timed>)>, names: &Names) -> Result<(), Error> {
        let mut failed = Ok(());
        for (device, events) in events {
            let (directory, process) = (&self.directory, &self.process);
            let trace = self.open.entry(device).or_insert_with(|| {
                OpenTrace::create(directory, process, device).map_err(|error| failed = Err(error)).ok()
            });
            let Some(trace) = trace else {
                self.lost += events.len() as u64;
                continue;
            };
            let before = trace.lost;
            if let Err(source) = trace.write(&events, names) {
                failed = Err(Error { path: trace.path.clone(), source });
            }
            self.lost += trace.lost - before;
        }
        failed
    }

    /// Ends all files, named after `rank`, which may have been unknown before; `said`: metadata of their end.
    pub fn finish(&mut self, rank: u32, said: &[(&str, &str)]) -> Result<(), Error> {
        let mut failed = Ok(());
        for (device, trace) in std::mem::take(&mut self.open) {
            let Some(mut trace) = trace else { continue };
            let path = trace.path.clone();
            let lost = trace.lost;
            let ended = trace.end((rank != self.process.rank).then_some(rank), said);
            self.lost += trace.lost - lost;
            // The file stays locked until it has its name.
            let settled = match trace.lost {
                0 => ended.and_then(|()| settle(&path, &self.directory, rank, device, &self.process)),
                _ => ended,
            };
            failed = settled.map_err(|source| Error { path, source }).and(failed);
        }
        failed
    }
}

impl OpenTrace {
    fn create(directory: &Path, process: &Process, device: u32) -> Result<Self, Error> {
        let named = |source| Error { path: directory.join(format!("rank{}_dev{device}.trace", process.rank)), source };
        let (path, file) = create(directory, process.rank, device).map_err(named)?;
        let begin = |file| -> io::Result<Writer<Chunks>> {
            let mut writer = Writer::new(Chunks::new(file), device)?;
            writer.settings(&process.settings)?;
            for (key, value) in &process.metadata {
                writer.metadata(key, value)?;
            }
            Ok(writer)
        };
        match begin(file) {
            Ok(writer) => {
                let (strings, stacks) = (FxHashMap::default(), FxHashMap::default());
                Ok(OpenTrace { path, writer, strings, stacks, last: (0, 0), lost: 0 })
            }
            Err(source) => {
                // It holds nothing yet, and would be in the way of the next try.
                let _ = fs::remove_file(&path);
                Err(Error { path, source })
            }
        }
    }

    fn length(&mut self) -> u64 {
        self.writer.get_mut().map_or(0, |file| file.length())
    }

    /// Writes events; what cannot be written is counted. An error is returned once.
    fn write(&mut self, events: &[Timed], names: &Names) -> io::Result<()> {
        if self.lost > 0 {
            self.lost += events.len() as u64;
            return Ok(());
        }
        let (mut length, mut written) = (self.length(), 0);
        let first = length;
        let mut push = || -> io::Result<()> {
            for (index, event) in events.iter().enumerate() {
                self.push(event, names)?;
                if self.length() > length {
                    (length, written) = (self.length(), index as u64 + 1);
                }
            }
            self.writer.flush()
        };
        let done = push();
        match done {
            Ok(()) => self.last = (first, events.len() as u64),
            Err(_) => {
                self.writer.forget_pending();
                self.lost = (events.len() as u64 - written).max(1);
                if written > 0 {
                    self.last = (first, written);
                }
            }
        }
        done
    }

    /// Marks the file as whole, saying how many events are missing. If there is no room for that, the last events that
    /// were written make room.
    fn end(&mut self, rank: Option<u32>, said: &[(&str, &str)]) -> io::Result<()> {
        let end = |writer: &mut Writer<Chunks>, lost: u64| {
            if lost > 0 {
                writer.metadata("lost_events", &lost.to_string())?;
            }
            if let Some(rank) = rank {
                writer.metadata("rank", &rank.to_string())?;
            }
            for (key, value) in said {
                writer.metadata(key, value)?;
            }
            writer.end()
        };
        let (before, events) = self.last;
        let Err(error) = end(&mut self.writer, self.lost) else { return Ok(()) };
        if before == 0 {
            return Err(error);
        }
        self.writer.get_mut().map_or(Ok(()), |file| file.cut(before))?;
        self.lost += events;
        end(&mut self.writer, self.lost)
    }

    fn push(&mut self, Timed { event, time_us }: &Timed, names: &Names) -> io::Result<()> {
        let event = match event {
            RawEvent::Alloc { address, size, stream, stack } => {
                RawEvent::Alloc { address: *address, size: *size, stream: *stream, stack: self.stack(*stack, names) }
            }
            RawEvent::Mark(mark) => RawEvent::Mark(self.mark(mark, names)),
            RawEvent::OutOfMemory { size, device_free, stack } => {
                RawEvent::OutOfMemory { size: *size, device_free: *device_free, stack: self.stack(*stack, names) }
            }
            RawEvent::Stack { whose, stack } => RawEvent::Stack { whose: *whose, stack: self.stack(*stack, names) },
            other => other.clone(),
        };
        self.writer.push(&event, Some(*time_us))
    }

    fn mark(&mut self, mark: &Mark, names: &Names) -> Mark {
        match *mark {
            Mark::Phase { kind, micro_batch } => Mark::Phase { kind: self.string(kind, names), micro_batch },
            Mark::ModuleEnter(name) => Mark::ModuleEnter(self.string(name, names)),
            Mark::ModuleExit(name) => Mark::ModuleExit(self.string(name, names)),
            Mark::AnnotationBegin(name) => Mark::AnnotationBegin(self.string(name, names)),
            Mark::AnnotationEnd(name) => Mark::AnnotationEnd(self.string(name, names)),
            Mark::HostRead { stack, bytes, answer } => Mark::HostRead {
                stack: self.stack(stack, names),
                bytes,
                answer: answer.map(|answer| self.string(answer, names)),
            },
            Mark::StepBegin => Mark::StepBegin,
            Mark::StepEnd => Mark::StepEnd,
        }
    }

    fn string(&mut self, id: StringId, names: &Names) -> StringId {
        *self.strings.entry(id).or_insert_with(|| self.writer.string(names.text(id)))
    }

    fn stack(&mut self, id: StackId, names: &Names) -> StackId {
        if let Some(&known) = self.stacks.get(&id) {
            return known;
        }
        let frame = |frame: &Frame| Frame {
            file: self.string(frame.file, names),
            function: self.string(frame.function, names),
            line: frame.line,
        };
        let frames: Vec<Frame> = names.frames(id).iter().map(frame).collect();
        let own = self.writer.stack(&frames);
        self.stacks.insert(id, own);
        own
    }
}
