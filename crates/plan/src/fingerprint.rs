//! Which trace a plan was made from.

use stalloc_trace::Trace;

/// The fingerprint of the trace that a plan is made from: [`Trace::fingerprint`] of its device.
pub fn fingerprint(trace: &Trace) -> u64 {
    trace.fingerprint()
}
