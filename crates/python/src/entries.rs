//! Entries of PyTorch's memory history, as Python has them.

use std::collections::HashMap;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use stalloc_recorder::Recorder;
use stalloc_trace::site::{BACKWARD_PASS, forward_frame};
use stalloc_trace::{Frame, RawEvent, SegmentAction, StackId};

/// Entries of one device, and what has been seen of them.
pub struct Entries<'py> {
    entries: Bound<'py, PyList>,
    /// Frames are one Python object however often they occur; by its address, which `entries` keeps valid.
    frames: HashMap<usize, Frame>,
}

impl<'py> Entries<'py> {
    pub fn new(entries: Bound<'py, PyList>) -> Self {
        Entries { entries, frames: HashMap::new() }
    }

    /// Calls `each` with every event, its time in microseconds and its call stack.
    pub fn for_each(&mut self, recorder: &Recorder, mut each: impl FnMut(RawEvent, u64)) -> PyResult<()> {
        let entries = self.entries.clone();
        for entry in entries.iter() {
            let entry = entry.cast_into::<PyDict>()?;
            if let Some(event) = self.event(recorder, &entry)? {
                each(event, number(&entry, "time_us").unwrap_or(0));
            }
        }
        Ok(())
    }

    fn event(&mut self, recorder: &Recorder, entry: &Bound<'py, PyDict>) -> PyResult<Option<RawEvent>> {
        let action = entry.get_item("action")?.ok_or_else(|| PyValueError::new_err("a history entry has no action"))?;
        let action = action.cast_into::<PyString>()?;
        let action = action.to_cow()?;
        if action == "snapshot" {
            return Ok(None);
        }
        let size = number(entry, "size")?;
        if action == "oom" {
            let (device_free, stack) = (number(entry, "device_free")?, self.stack(recorder, entry)?);
            return Ok(Some(RawEvent::OutOfMemory { size, device_free, stack }));
        }
        let address = number(entry, "addr")?;
        let stream = number(entry, "stream")?;
        let segment = |action| RawEvent::Segment { action, address, size, stream };
        Ok(Some(match &*action {
            "alloc" => RawEvent::Alloc { address, size, stream, stack: self.stack(recorder, entry)? },
            "free_requested" => RawEvent::FreeRequested { address, size, stream },
            "free_completed" => RawEvent::FreeCompleted { address, size, stream },
            "segment_alloc" => segment(SegmentAction::Alloc),
            "segment_free" => segment(SegmentAction::Free),
            "segment_map" => segment(SegmentAction::Map),
            "segment_unmap" => segment(SegmentAction::Unmap),
            _ => return Ok(None),
        }))
    }

    fn stack(&mut self, recorder: &Recorder, entry: &Bound<'py, PyDict>) -> PyResult<StackId> {
        let Some(frames) = entry.get_item("frames")? else { return Ok(StackId::NONE) };
        let mut stack = Vec::new();
        for frame in frames.cast_into::<PyList>()?.iter() {
            let key = frame.as_ptr() as usize;
            let known = match self.frames.get(&key) {
                Some(known) => *known,
                None => {
                    let frame = frame.cast_into::<PyDict>()?;
                    let text = |name| -> PyResult<_> {
                        let text: String = frame.get_item(name)?.map_or(Ok(String::new()), |text| text.extract())?;
                        Ok(recorder.string(&text))
                    };
                    let line = number(&frame, "line").unwrap_or(0).try_into().unwrap_or(0);
                    let known = Frame { file: text("filename")?, function: text("name")?, line };
                    self.frames.insert(key, known);
                    known
                }
            };
            stack.push(known);
        }
        // Texts of Python's `traceback`, outermost first, in PyTorch's anomaly mode.
        if let Some(forward) = entry.get_item("forward_frames")? {
            let texts: Vec<String> = forward.extract().unwrap_or_default();
            let known = texts.iter().rev().filter_map(|text| forward_frame(text));
            let frames = known.map(|(file, line, function)| Frame {
                file: recorder.string(file),
                function: recorder.string(function),
                line,
            });
            let frames: Vec<Frame> = frames.collect();
            if !frames.is_empty() {
                stack.push(Frame { file: recorder.string(""), function: recorder.string(BACKWARD_PASS), line: 0 });
                stack.extend(frames);
            }
        }
        Ok(recorder.stack(stack))
    }
}

fn number(entry: &Bound<'_, PyDict>, name: &str) -> PyResult<u64> {
    match entry.get_item(name)? {
        // Addresses of the upper half come as negative numbers from some versions.
        Some(value) => value.extract::<u64>().or_else(|_| Ok(value.extract::<i64>()? as u64)),
        None => Err(PyValueError::new_err(format!("a history entry has no {name}"))),
    }
}
