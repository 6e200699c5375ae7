//! Stream capture: which streams take part, what is forbidden meanwhile, and how many nodes come together.

use super::{CAPTURING, Execution, Handle, streams::LEGACY};
use crate::errors::{
    CAPTURE_INVALIDATED, CAPTURE_UNMATCHED, CAPTURE_UNSUPPORTED, ILLEGAL_STATE, INVALID_HANDLE, NOT_READY, Status,
};
use std::{cell::Cell, sync::atomic::Ordering::Relaxed, thread::ThreadId};

/// Who is forbidden what while a capture runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// No thread may make an unsafe call.
    Global,
    /// The capturing thread may not.
    ThreadLocal,
    /// Everybody may.
    Relaxed,
}

impl Mode {
    /// From CUDA's number.
    pub fn from_number(number: i32) -> Self {
        match number {
            1 => Self::ThreadLocal,
            2 => Self::Relaxed,
            _ => Self::Global,
        }
    }

    /// CUDA's number.
    pub fn number(self) -> i32 {
        match self {
            Self::Global => 0,
            Self::ThreadLocal => 1,
            Self::Relaxed => 2,
        }
    }
}

thread_local! {
    static THREAD_MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// Changes the calling thread's mode and returns the one before.
pub fn exchange_thread_mode(mode: Mode) -> Mode {
    THREAD_MODE.replace(mode)
}

/// A capture in progress: where and how it began, what it has recorded so far, whether it broke.
#[derive(Debug)]
pub struct Capture {
    origin: Handle,
    mode: Mode,
    thread: ThreadId,
    graph: Handle,
    nodes: u64,
    nanoseconds: u64,
    broken: bool,
}

/// What a program can ask of a capturing stream: the capture's number, its graph, and whether it is still valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaptureInfo {
    /// Its number.
    pub number: u64,
    /// The graph that it fills.
    pub graph: Handle,
    /// Whether no forbidden call was made.
    pub valid: bool,
}

impl Execution {
    /// Begins a capture on `stream`, into `graph` or a new one.
    pub fn begin_capture(&mut self, stream: Handle, mode: Mode, graph: Option<Handle>) -> Result<(), Status> {
        if LEGACY.contains(&stream) {
            return Err(CAPTURE_UNSUPPORTED);
        }
        if self.stream(stream)?.capture.is_some_and(|number| self.captures.contains_key(&number)) {
            return Err(ILLEGAL_STATE);
        }
        let graph = match graph {
            Some(graph) if self.graphs.contains_key(&graph) => graph,
            Some(_) => return Err(INVALID_HANDLE),
            None => self.create_graph(),
        };
        self.captures_begun += 1;
        let number = self.captures_begun;
        let thread = std::thread::current().id();
        self.captures
            .insert(number, Capture { origin: stream, mode, thread, graph, nodes: 0, nanoseconds: 0, broken: false });
        CAPTURING.fetch_add(1, Relaxed);
        if let Some(stream) = self.stream_mut(stream) {
            stream.capture = Some(number);
        }
        Ok(())
    }

    /// Ends the capture that began on `stream`; its graph.
    pub fn end_capture(&mut self, stream: Handle) -> Result<Handle, Status> {
        let number = self.capture_number(stream).ok_or(ILLEGAL_STATE)?;
        if self.captures.get(&number).is_some_and(|capture| capture.origin != stream) {
            return Err(CAPTURE_UNMATCHED);
        }
        let capture = self.captures.remove(&number).ok_or(ILLEGAL_STATE)?;
        CAPTURING.fetch_sub(1, Relaxed);
        for stream in self.streams.values_mut().filter(|stream| stream.capture == Some(number)) {
            stream.capture = None;
        }
        if capture.broken {
            self.graphs.remove(&capture.graph);
            return Err(CAPTURE_INVALIDATED);
        }
        if let Some(graph) = self.graphs.get_mut(&capture.graph) {
            graph.nodes += capture.nodes;
            graph.nanoseconds = graph.nanoseconds.saturating_add(capture.nanoseconds);
        }
        Ok(capture.graph)
    }

    /// The capture that a stream takes part in.
    pub fn capture_info(&self, stream: Handle) -> Option<CaptureInfo> {
        let number = self.capture_number(stream)?;
        let capture = self.captures.get(&number)?;
        Some(CaptureInfo { number, graph: capture.graph, valid: !capture.broken })
    }

    /// Whether work on a stream is captured, and so not done.
    pub fn is_capturing(&self, stream: Handle) -> bool {
        self.capture_number(stream).is_some()
    }

    /// The host waits for a stream.
    pub fn synchronize_stream(&mut self, stream: Handle) -> Result<(), Status> {
        self.wait_for(stream)?;
        self.host_waits_for(stream);
        let done = self.done(stream);
        self.timeline.wait(done);
        super::waited();
        Ok(())
    }

    /// Whether a stream has done all that it was given.
    pub fn query_stream(&mut self, stream: Handle) -> Result<(), Status> {
        self.wait_for(stream)?;
        if self.is_stream_done(stream) { Ok(()) } else { Err(NOT_READY) }
    }

    /// The host waits for the whole device.
    pub fn synchronize(&mut self) -> Result<(), Status> {
        self.wait_for_all()?;
        self.host_waits_for_all();
        let done = self.timeline.done(None);
        self.timeline.wait(done);
        super::waited();
        Ok(())
    }

    /// A call that waits for a stream: while the stream is capturing it fails and breaks the capture.
    pub(super) fn wait_for(&mut self, stream: Handle) -> Result<(), Status> {
        self.stream(stream)?;
        match self.capture_number(stream) {
            Some(number) => self.break_capture(number),
            None => Ok(()),
        }
    }

    /// A call that waits for a whole device, or allocates: forbidden while any capture says so.
    pub fn wait_for_all(&mut self) -> Result<(), Status> {
        let thread = std::thread::current().id();
        let own_mode = THREAD_MODE.get();
        let forbidding = self.captures.iter().find(|(_, capture)| match (own_mode, capture.mode) {
            (Mode::Relaxed, _) | (_, Mode::Relaxed) => false,
            (Mode::Global, Mode::Global) => true,
            _ => capture.thread == thread,
        });
        match forbidding.map(|(number, _)| *number) {
            Some(number) => self.break_capture(number),
            None => Ok(()),
        }
    }

    fn break_capture(&mut self, number: u64) -> Result<(), Status> {
        if let Some(capture) = self.captures.get_mut(&number) {
            capture.broken = true;
        }
        Err(CAPTURE_UNSUPPORTED)
    }

    fn capture_number(&self, stream: Handle) -> Option<u64> {
        let number = self.streams.get(&stream)?.capture?;
        self.captures.contains_key(&number).then_some(number)
    }

    /// Work of a captured stream takes so long, once its graph is launched; whether the stream is one.
    pub(super) fn takes_in_capture(&mut self, stream: Handle, nanoseconds: u64) -> bool {
        let capture = self.capture_number(stream).and_then(|number| self.captures.get_mut(&number));
        capture.map(|capture| capture.nanoseconds = capture.nanoseconds.saturating_add(nanoseconds)).is_some()
    }

    /// Counts work into the capture of `stream`, or into all when the stream is not known (libraries keep it to themselves).
    pub(super) fn count_nodes(&mut self, stream: Option<Handle>) {
        match stream {
            Some(stream) => {
                if let Some(number) = self.capture_number(stream)
                    && let Some(capture) = self.captures.get_mut(&number)
                {
                    capture.nodes += 1;
                }
            }
            None => self.captures.values_mut().for_each(|capture| capture.nodes += 1),
        }
    }
}
