//! The request that a job died of, and whether it would have fitted into what was held and empty.

use stalloc_trace::{Event, Time, Trace};

use crate::curve::value_at;
use crate::figures::OutOfMemory;
use crate::words::bytes;

/// The last request that failed for lack of memory; `reserved` is what the recorded allocator held over time, where that
/// is known. O(events).
pub fn failure(trace: &Trace, live: &[(Time, u64)], reserved: Option<&[(Time, u64)]>) -> Option<OutOfMemory> {
    let mut failed = trace.events.iter().enumerate().filter_map(|(time, event)| match event {
        Event::OutOfMemory { size, device_free } => Some((time as Time, *size, *device_free)),
        _ => None,
    });
    let times = failed.clone().count();
    let (time, size, device_free) = failed.next_back()?;
    let allocated = value_at(live, time);
    let empty = reserved.map(|curve| value_at(curve, time).saturating_sub(allocated));
    let sentence = sentence(times, size, device_free, empty);
    Some(OutOfMemory { times, time, size, device_free, empty, sentence })
}

fn sentence(times: usize, size: u64, device_free: u64, empty: Option<u64>) -> String {
    let often = if times == 1 { String::new() } else { format!(" {times} times, the last time") };
    let asked = format!("It ran out of memory{often} asking for {}", bytes(size));
    let free = bytes(device_free);
    let Some(empty) = empty else { return format!("{asked}, with {free} free on the device.") };
    let room = empty.saturating_add(device_free);
    let verdict = match size.checked_sub(room) {
        None | Some(0) => "in one piece, that would have been enough".to_owned(),
        Some(short) => format!("even in one piece, that is {} too little", bytes(short)),
    };
    format!("{asked}, with {} reserved but empty and {free} free on the device: {verdict}.", bytes(empty))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_failure_says_whether_the_empty_memory_would_have_been_enough() {
        let text = sentence(1, 2 * GIB, GIB / 2, Some(3 * GIB));
        assert!(text.ends_with("512 MiB free on the device: in one piece, that would have been enough."), "{text}");
        assert!(text.contains("asking for 2.00 GiB, with 3.00 GiB reserved but empty"), "{text}");
        let text = sentence(3, 8 * GIB, GIB, Some(3 * GIB));
        assert!(text.contains("3 times, the last time asking for 8.00 GiB"), "{text}");
        assert!(text.ends_with("even in one piece, that is 4.00 GiB too little."), "{text}");
        assert!(!sentence(1, GIB, 0, None).contains("empty"));
        sentence(2, u64::MAX, u64::MAX, Some(u64::MAX));
    }
}
