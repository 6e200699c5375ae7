//! A trace, as Python has PyTorch's memory history: a list of dicts for each device.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use stalloc_trace::{Event, Input, Mark, RequestId, SegmentAction, StackId, Trace, open};

/// Reads a file of any known format that holds a recording.
#[pyfunction]
pub fn read_trace<'py>(py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyDict>> {
    let input = py.detach(|| open(&path, &mut |_, _| {})).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let Input::Recording(recording) = input else {
        return Err(PyValueError::new_err(format!("{} holds no recording", path.display())));
    };
    let traces = PyList::empty(py);
    for trace in &recording.traces {
        let dict = PyDict::new(py);
        dict.set_item("device", trace.device)?;
        dict.set_item("metadata", trace.metadata.clone())?;
        dict.set_item("peak_allocated", trace.peak_allocated())?;
        dict.set_item("entries", EntryList { py, trace, stacks: Vec::new() }.list()?)?;
        traces.append(dict)?;
    }
    let dict = PyDict::new(py);
    dict.set_item("warnings", recording.warnings)?;
    dict.set_item("traces", traces)?;
    Ok(dict)
}

struct EntryList<'py, 'a> {
    py: Python<'py>,
    trace: &'a Trace,
    /// The stacks that have been translated, by their number.
    stacks: Vec<Option<Bound<'py, PyList>>>,
}

impl<'py> EntryList<'py, '_> {
    fn list(mut self) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(self.py);
        for (index, event) in self.trace.events.iter().enumerate() {
            let entry = PyDict::new(self.py);
            self.fill(&entry, event)?;
            if let Some(time) = self.trace.times_us.get(index) {
                entry.set_item("time_us", time)?;
            }
            list.append(entry)?;
        }
        Ok(list)
    }

    fn fill(&mut self, entry: &Bound<'py, PyDict>, event: &Event) -> PyResult<()> {
        match event {
            Event::Alloc(id) => {
                self.request(entry, "alloc", *id)?;
                let stack = self.trace.request(*id).stack;
                entry.set_item("frames", self.stack(stack)?)
            }
            Event::FreeRequested(id) => self.request(entry, "free_requested", *id),
            Event::FreeCompleted(id) => self.request(entry, "free_completed", *id),
            Event::Segment(segment) => {
                let action = match segment.action {
                    SegmentAction::Alloc => "segment_alloc",
                    SegmentAction::Free => "segment_free",
                    SegmentAction::Map => "segment_map",
                    SegmentAction::Unmap => "segment_unmap",
                };
                entry.set_item("action", action)?;
                entry.set_item("addr", segment.address)?;
                entry.set_item("size", segment.size)?;
                entry.set_item("stream", self.trace.streams.get(segment.stream.0 as usize))
            }
            Event::OutOfMemory { size, device_free, stack } => {
                entry.set_item("action", "oom")?;
                entry.set_item("size", size)?;
                entry.set_item("device_free", device_free)?;
                entry.set_item("frames", self.stack(*stack)?)
            }
            Event::Snapshot => entry.set_item("action", "snapshot"),
            Event::Mark(mark) => self.mark(entry, mark),
        }
    }

    fn request(&self, entry: &Bound<'py, PyDict>, action: &str, id: RequestId) -> PyResult<()> {
        let request = self.trace.request(id);
        entry.set_item("action", action)?;
        entry.set_item("addr", request.address)?;
        entry.set_item("size", request.size)?;
        entry.set_item("stream", self.trace.streams.get(request.stream.0 as usize))
    }

    fn mark(&mut self, entry: &Bound<'py, PyDict>, mark: &Mark) -> PyResult<()> {
        let name = match mark {
            Mark::StepBegin => return entry.set_item("action", "step_begin"),
            Mark::StepEnd => return entry.set_item("action", "step_end"),
            Mark::HostRead { stack, bytes, answer } => {
                entry.set_item("action", "host_read")?;
                entry.set_item("size", bytes)?;
                entry.set_item("answer", answer.map(|answer| self.trace.string(answer)))?;
                return entry.set_item("frames", self.stack(*stack)?);
            }
            Mark::Phase { kind, micro_batch } => {
                entry.set_item("action", "phase")?;
                entry.set_item("micro_batch", micro_batch)?;
                kind
            }
            Mark::ModuleEnter(name) => entry.set_item("action", "module_enter").map(|()| name)?,
            Mark::ModuleExit(name) => entry.set_item("action", "module_exit").map(|()| name)?,
            Mark::AnnotationBegin(name) => entry.set_item("action", "annotation_begin").map(|()| name)?,
            Mark::AnnotationEnd(name) => entry.set_item("action", "annotation_end").map(|()| name)?,
        };
        entry.set_item("name", self.trace.string(*name))
    }

    fn stack(&mut self, id: StackId) -> PyResult<Bound<'py, PyList>> {
        let index = id.0 as usize;
        if self.stacks.len() <= index {
            self.stacks.resize(self.trace.stacks.len().max(index + 1), None);
        }
        if let Some(list) = &self.stacks[index] {
            return Ok(list.clone());
        }
        let list = PyList::empty(self.py);
        for frame in self.trace.stacks.get(id) {
            let dict = PyDict::new(self.py);
            dict.set_item("filename", self.trace.string(frame.file))?;
            dict.set_item("name", self.trace.string(frame.function))?;
            dict.set_item("line", frame.line)?;
            list.append(dict)?;
        }
        self.stacks[index] = Some(list.clone());
        Ok(list)
    }
}
