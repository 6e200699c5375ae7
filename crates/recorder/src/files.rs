//! Trace files, one per device.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use stalloc_trace::{AllocatorSettings, Frame, Mark, RawEvent, StackId, StringId};

use stalloc_trace::format::Writer;

use crate::log::Timed;
use crate::names::Names;

/// A file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
pub struct Error {
    path: PathBuf,
    source: io::Error,
}

/// What every trace of a process says about it.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Its rank, as far as it is known yet.
    pub rank: u32,
    /// How its allocator is set up.
    pub settings: AllocatorSettings,
    /// What else is to be told: `torch`, `device_name`, `total_memory`, `command`...
    pub metadata: BTreeMap<String, String>,
}

/// The files of a process.
pub struct Files {
    directory: PathBuf,
    process: Process,
    open: BTreeMap<u32, Trace>,
}

struct Trace {
    path: PathBuf,
    writer: Writer<File>,
    /// The file's ids of the process's strings and stacks.
    strings: FxHashMap<StringId, StringId>,
    stacks: FxHashMap<StackId, StackId>,
}

impl Files {
    /// Files in `directory`, which exists. None is made yet.
    pub fn new(directory: PathBuf, process: Process) -> Self {
        Files { directory, process, open: BTreeMap::new() }
    }

    /// Writes events of several devices and hands them to the operating system.
    pub fn write(&mut self, events: Vec<(u32, Vec<Timed>)>, names: &Names) -> Result<(), Error> {
        for (device, events) in events {
            let trace = match self.open.remove(&device) {
                Some(trace) => trace,
                None => Trace::create(&self.directory, &self.process, device)?,
            };
            let trace = self.open.entry(device).or_insert(trace);
            trace.write(&events, names).map_err(|source| Error { path: trace.path.clone(), source })?;
        }
        Ok(())
    }

    /// Ends all files. If the process turned out to have another rank, they get its name.
    pub fn finish(&mut self, rank: u32) -> Result<(), Error> {
        for (device, mut trace) in std::mem::take(&mut self.open) {
            let path = trace.path;
            let failed = |source| Error { path: path.clone(), source };
            if rank != self.process.rank {
                trace.writer.metadata("rank", &rank.to_string()).map_err(failed)?;
            }
            trace.writer.finish().map_err(failed)?;
            let named = self.directory.join(name(rank, device));
            if rank != self.process.rank && !named.exists() {
                fs::rename(&path, named).map_err(failed)?;
            }
        }
        Ok(())
    }
}

fn name(rank: u32, device: u32) -> String {
    format!("rank{rank}_dev{device}.trace")
}

impl Trace {
    fn create(directory: &Path, process: &Process, device: u32) -> Result<Self, Error> {
        let (path, file) = create(directory, process.rank, device)?;
        let begin = |file| -> io::Result<Writer<File>> {
            let mut writer = Writer::new(file, device)?;
            writer.settings(&process.settings)?;
            for (key, value) in &process.metadata {
                writer.metadata(key, value)?;
            }
            Ok(writer)
        };
        match begin(file) {
            Ok(writer) => Ok(Trace { path, writer, strings: FxHashMap::default(), stacks: FxHashMap::default() }),
            Err(source) => Err(Error { path, source }),
        }
    }

    fn write(&mut self, events: &[Timed], names: &Names) -> io::Result<()> {
        for Timed { event, time_us } in events {
            let event = match event {
                RawEvent::Alloc { address, size, stream, stack } => RawEvent::Alloc {
                    address: *address,
                    size: *size,
                    stream: *stream,
                    stack: self.stack(*stack, names),
                },
                RawEvent::Mark(mark) => RawEvent::Mark(self.mark(mark, names)),
                other => other.clone(),
            };
            self.writer.push(&event, Some(*time_us))?;
        }
        self.writer.flush()
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

/// A new file for a device's trace; with our process's number if another process has the name.
fn create(directory: &Path, rank: u32, device: u32) -> Result<(PathBuf, File), Error> {
    let path = directory.join(name(rank, device));
    match File::create_new(&path) {
        Ok(file) => Ok((path, file)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let path = directory.join(format!("rank{rank}_dev{device}.{}.trace", std::process::id()));
            let file = File::create(&path);
            file.map(|file| (path.clone(), file)).map_err(|source| Error { path, source })
        }
        Err(source) => Err(Error { path, source }),
    }
}
