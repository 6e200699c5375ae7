//! The request that a job died of, and whether it would have fitted into what was held and empty.

use stalloc_trace::{Event, Request, RequestId, StackId, StreamId, Time, Trace};

use crate::curve::value_at;
use crate::figures::OutOfMemory;
use crate::words::bytes;

/// A request that failed, as its event has it.
#[derive(Clone, Copy, Debug)]
pub struct Failed {
    pub time: Time,
    pub size: u64,
    pub device_free: u64,
    pub stack: StackId,
}

/// All requests that failed, the last one first.
pub fn failures(trace: &Trace) -> impl Iterator<Item = Failed> {
    trace.events.iter().enumerate().rev().filter_map(|(time, event)| match *event {
        Event::OutOfMemory { size, device_free, stack } => {
            Some(Failed { time: time as Time, size, device_free, stack })
        }
        _ => None,
    })
}

/// Makes the last request that failed one of the trace, given back as soon as it was served, so that every sum and every
/// replay counts it. Three events follow the failure; later times and numbers move up. O(events + requests).
pub fn count_failed(trace: &mut Trace) -> Option<RequestId> {
    let Failed { time: at, size, stack, .. } = failures(trace).next()?;
    let added = at + 1;
    let next = added as usize;
    let before = trace.requests.partition_point(|request| request.alloc.is_none_or(|alloc| alloc < added));
    let id = RequestId(before as u32);
    let later = |other: &mut RequestId| other.0 += u32::from(*other >= id);
    let shift = |time: &mut Option<Time>| {
        if let Some(time) = time {
            *time += if *time >= added { 3 } else { 0 };
        }
    };
    for request in &mut trace.requests {
        shift(&mut request.alloc);
        shift(&mut request.free_requested);
        shift(&mut request.free_completed);
    }
    for event in &mut trace.events {
        if let Event::Alloc(other) | Event::FreeRequested(other) | Event::FreeCompleted(other) = event {
            later(other);
        }
    }
    for state in [&mut trace.initial, &mut trace.last].into_iter().flatten() {
        for block in state.segments.iter_mut().flat_map(|segment| &mut segment.blocks) {
            block.request.as_mut().map(later);
        }
    }
    // The stream is not recorded: that of the request before it is the likeliest.
    let stream =
        before.checked_sub(1).and_then(|last| trace.requests.get(last)).map_or(StreamId(0), |last| last.stream);
    let (alloc, free_requested, free_completed) = (Some(added), Some(added + 1), Some(added + 2));
    let failed = Request { size, stream, address: None, stack, alloc, free_requested, free_completed };
    trace.requests.insert(before, failed);
    let events = [Event::Alloc(id), Event::FreeRequested(id), Event::FreeCompleted(id)];
    trace.events.splice(next..next, events);
    if let Some(&time) = trace.times_us.get(at as usize) {
        trace.times_us.splice(next..next, [time; 3]);
    }
    Some(id)
}

/// The last request that failed for lack of memory; `reserved` is what the recorded allocator held over time, where that
/// is known; `allowed` what the program allows itself of the device. O(events).
pub fn failure(
    trace: &Trace,
    live: &[(Time, u64)],
    reserved: Option<&[(Time, u64)]>,
    allowed: Option<u64>,
) -> Option<OutOfMemory> {
    let times = failures(trace).count();
    let Failed { time, size, device_free, stack } = failures(trace).next()?;
    let site = stalloc_trace::site::site(trace.stacks.get(stack), |id| trace.string(id));
    let allocated = value_at(live, time);
    let held = reserved.map(|curve| value_at(curve, time));
    let empty = held.map(|held| held.saturating_sub(allocated));
    let more = held.zip(allowed).map_or(device_free, |(held, allowed)| device_free.min(allowed.saturating_sub(held)));
    let capacity = held.map(|held| held.saturating_add(more));
    let sentence = sentence(times, size, device_free, more, empty);
    Some(OutOfMemory { times, time, site, size, device_free, allocated, empty, capacity, sentence })
}

fn sentence(times: usize, size: u64, device_free: u64, more: u64, empty: Option<u64>) -> String {
    let often = if times == 1 { String::new() } else { format!(" {times} times, the last time") };
    let free = bytes(device_free);
    let allowed = if more < device_free { format!(", {} of it allowed", bytes(more)) } else { String::new() };
    if size == 0 {
        return format!(
            "A library asked the device itself for memory, with {free} free: no request of PyTorch's allocator failed last."
        );
    }
    let asked = format!("It ran out of memory{often} asking for {}", bytes(size));
    let Some(empty) = empty else { return format!("{asked}, with {free} free on the device.") };
    let room = empty.saturating_add(more);
    let verdict = match size.checked_sub(room) {
        None | Some(0) => "in one piece, that would have been enough".to_owned(),
        Some(short) => format!("even in one piece, that is {} too little", bytes(short)),
    };
    format!("{asked}, with {} reserved but empty and {free} free on the device{allowed}: {verdict}.", bytes(empty))
}

#[cfg(test)]
mod tests;
