//! The text of PyTorch's error when memory runs out, in a log or alone: what was wanted, the capacity, and what was free, allocated and
//! reserved, as a trace of that one moment.

use crate::builder::TraceBuilder;
use crate::model::{Format, Recording};
use crate::raw::RawEvent;
use crate::state::{MemoryState, Pool, Segment};
use crate::{StackId, Trace};

/// What every version's text begins with.
const BEGINS: &str = "out of memory. Tried to allocate ";
/// A text is no longer than this, bytes.
const LONGEST: usize = 2000;
/// More than any device has, bytes: what claims more is no text of PyTorch's.
const MOST: u64 = 1 << 46;

/// The first such error of a text; `None` where there is none.
pub(crate) fn read(head: &[u8]) -> Option<Recording> {
    let text = String::from_utf8_lossy(head);
    let (_, rest) = text.split_once(BEGINS)?;
    // PyTorch 2.1 and 2.2 write it so.
    let rest = rest.chars().take(LONGEST).collect::<String>().replace(" capacty ", " capacity ");
    // The error of another process of the same log is another one.
    let told = Told::of(rest.split_once(BEGINS).map_or(&*rest, |(first, _)| first))?;
    Some(Recording { format: Format::ErrorText, traces: vec![told.trace()], warnings: Vec::new() })
}

/// What the text says; some of it only in newer versions.
struct Told {
    device: u32,
    wanted: u64,
    total: u64,
    free: u64,
    allocated: u64,
    reserved: u64,
    allowed: Option<u64>,
    /// Other processes with their bytes.
    processes: Vec<(u64, u64)>,
}

impl Told {
    fn of(text: &str) -> Option<Told> {
        let wanted = first_bytes(text)?;
        let device = text.split_once("GPU ").and_then(|(_, rest)| number(rest)).unwrap_or(0);
        // PyTorch 2.1 and later, else the text before that.
        let (total, free, allocated, reserved) = match text.split_once(" total capacity of ") {
            Some((_, rest)) => {
                let allocated = before(rest, " is allocated by PyTorch")?;
                let unused = before(rest, " is reserved by PyTorch")?;
                (first_bytes(rest)?, before(rest, " is free")?, allocated, allocated.saturating_add(unused))
            }
            None => {
                let allocated = before(text, " already allocated")?;
                let reserved = before(text, " reserved in total by PyTorch").unwrap_or(allocated).max(allocated);
                (before(text, " total capacity")?, before(text, " free;")?, allocated, reserved)
            }
        };
        let processes = text.split("Process ").skip(1).filter_map(|one| {
            let (pid, rest) = one.split_once(" has ")?;
            // In a container this one has another number: what would not fit next to it is no other.
            let bytes = first_bytes(rest).filter(|bytes| bytes.saturating_add(reserved) <= total)?;
            Some((pid.parse().ok()?, bytes))
        });
        let fits = [wanted, total, free, allocated, reserved].into_iter().all(|bytes| bytes <= MOST);
        let processes = processes.collect();
        fits.then_some(Told {
            device,
            wanted,
            total,
            free,
            allocated,
            reserved,
            allowed: before(text, " allowed;"),
            processes,
        })
    }

    fn trace(&self) -> Trace {
        let mut builder = TraceBuilder::new(self.device.min(255));
        let (address, stream, stack) = (1 << 32, 0, StackId::NONE);
        if self.allocated > 0 {
            builder.push_initial(address, self.allocated, stream, stack, false);
        }
        let size = self.reserved.max(self.allocated).next_multiple_of(crate::ROUNDING);
        builder.push(RawEvent::OutOfMemory { size: self.wanted, device_free: self.free, stack }, None);
        let stream = builder.stream(stream);
        let mut trace = builder.finish();
        // Where its blocks lie the text does not say.
        let segment = Segment {
            address,
            size,
            stream,
            pool: Pool::Large,
            expandable: false,
            private_pool: (0, 0),
            blocks: Vec::new(),
        };
        trace.initial = Some(MemoryState { segments: vec![segment] });
        let processes = self.processes.iter().map(|(pid, bytes)| format!(r#"{{"pid":{pid},"bytes":{bytes}}}"#));
        let allowed = self.allowed.map_or(String::new(), |bytes| format!(r#""allowed":{bytes},"#));
        trace.facts = Some(format!(
            r#"{{"device":{},"total":{},"free":{},"reserved":{},{allowed}"processes":[{}]}}"#,
            trace.device,
            self.total,
            self.free,
            self.reserved,
            processes.collect::<Vec<_>>().join(",")
        ));
        trace
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// The bytes that a text begins with: `1.50 GiB`.
fn first_bytes(text: &str) -> Option<u64> {
    let mut words = text.split_whitespace();
    bytes(words.next()?, words.next()?)
}

/// The bytes that stand in front of some words.
fn before(text: &str, words: &str) -> Option<u64> {
    let mut before = text[..text.find(words)?].rsplit(|c: char| c.is_whitespace());
    let unit = before.next()?;
    bytes(before.next()?, unit)
}

fn bytes(number: &str, unit: &str) -> Option<u64> {
    let unit = match unit.trim_end_matches(|c: char| !c.is_ascii_alphabetic()) {
        "bytes" | "byte" => 1.0,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let number: f64 = number.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some((number * unit) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Event;

    const MIB: u64 = 1 << 20;
    const NEW: &str = "Traceback (most recent call last):\n  File \"train.py\", line 9, in <module>\ntorch.OutOfMemoryError: CUDA out of memory. Tried to \
        allocate 600.00 MiB. GPU 1 has a total capacity of 23.50 GiB of which 12.00 MiB is free. Process 7 has 1.00 GiB memory in use. Including \
        non-PyTorch memory, this process has 22.48 GiB memory in use. Of the allocated memory 20.00 GiB is allocated by PyTorch, and 1.50 GiB is \
        reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting ...";
    const OLD: &str = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total capacity; 13.25 GiB already \
        allocated; 1.02 GiB free; 13.50 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory";

    #[test]
    fn the_figures_of_old_and_new_texts_are_read() {
        let one = |text: &str| read(text.as_bytes()).unwrap().traces.remove(0);
        let trace = one(NEW);
        let failed = |trace: &Trace| {
            trace.events.iter().find_map(|event| match event {
                Event::OutOfMemory { size, device_free, .. } => Some((*size, *device_free)),
                _ => None,
            })
        };
        assert_eq!((trace.device, failed(&trace)), (1, Some((600 * MIB, 12 * MIB))));
        assert_eq!((trace.peak_allocated(), trace.peak_reserved()), (20 << 30, Some(22016 * MIB)));
        assert!(trace.facts.as_deref().unwrap().contains(r#""processes":[{"pid":7,"bytes":1073741824}]"#));
        let own = NEW.replace("capacity", "capacty").replace("has 1.00 GiB", "has 23.48 GiB");
        assert!(one(&own).facts.unwrap().contains(r#""processes":[]"#), "this process itself");
        let old = one(OLD);
        assert_eq!((failed(&old).unwrap().0, old.peak_reserved()), (2 << 30, Some(13824 * MIB)));
    }

    #[test]
    fn other_texts_are_none_and_odd_ones_do_no_harm() {
        for text in [
            "",
            "out of memory. Tried to allocate ",
            "a log",
            &NEW.replace("20.00 GiB", "x GiB"),
            &NEW.replace("600.00 MiB", "1e300 GiB"),
        ] {
            assert!(read(text.as_bytes()).is_none(), "{text}");
        }
        for end in 0..NEW.len() {
            let _ = read(&NEW.as_bytes()[..end]);
        }
    }
}
