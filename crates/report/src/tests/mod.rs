//! What a report says, on traces small enough to know the answer and on real ones.

mod made;
mod output;
mod real;
mod tables;
mod verdicts;

use stalloc_trace::{Frame, RawEvent, SegmentAction, StackId, Trace, TraceBuilder};

use crate::{ReportInput, Subject};

/// A recording in the making.
pub(crate) struct Maker {
    builder: TraceBuilder,
    clock: u64,
}

impl Maker {
    pub fn new() -> Self {
        Maker { builder: TraceBuilder::new(0), clock: 0 }
    }

    pub fn stack(&mut self, file: &str, line: u32, function: &str) -> StackId {
        let (file, function) = (self.builder.string(file), self.builder.string(function));
        self.builder.stack(&[Frame { file, function, line }])
    }

    pub fn event(&mut self, event: RawEvent) {
        self.clock += 3;
        self.builder.push(event, Some(self.clock));
    }

    pub fn segment(&mut self, action: SegmentAction, address: u64, size: u64) {
        self.event(RawEvent::Segment { action, address, size, stream: 0 });
    }

    pub fn alloc(&mut self, address: u64, size: u64, stack: StackId) {
        self.event(RawEvent::Alloc { address, size, stream: 0, stack });
    }

    pub fn free(&mut self, address: u64) {
        self.event(RawEvent::FreeRequested { address, size: 0, stream: 0 });
        self.event(RawEvent::FreeCompleted { address, size: 0, stream: 0 });
    }

    pub fn trace(self) -> Trace {
        self.builder.finish()
    }
}

pub(crate) fn input(name: &str, trace: Trace) -> ReportInput {
    ReportInput {
        name: name.into(),
        format: "test".into(),
        warnings: Vec::new(),
        devices: vec![Subject::new(trace, &mut |_, _, _| {})],
    }
}
