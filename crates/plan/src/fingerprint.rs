//! Which trace a plan was made from.

use stalloc_trace::Trace;

/// A number that is the same for the same requests in the same order, and that no accident repeats: FNV-1a (64 bits)
/// over the size, stream and lifetime of every request. Names, stacks and addresses do not count.
pub fn fingerprint(trace: &Trace) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut add = |value: u64| {
        for byte in value.to_le_bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(PRIME);
        }
    };
    let time = |time: Option<u32>| time.map_or(u64::MAX, u64::from);
    add(u64::from(trace.device));
    add(trace.requests.len() as u64);
    for request in &trace.requests {
        add(request.size);
        add(u64::from(request.stream.0));
        add(time(request.alloc));
        add(time(request.free_requested));
        add(time(request.free_completed));
    }
    hash
}
