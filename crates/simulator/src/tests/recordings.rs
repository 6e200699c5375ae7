//! Real recordings.

use super::*;
use crate::fidelity::compare;

#[test]
fn what_was_recorded_happens_again_address_for_address() {
    for (path, recording) in recordings() {
        for trace in recording.traces {
            let result = compare(&trace).unwrap();
            assert_eq!(result.difference, None, "{path}, device {}", trace.device);
            assert_eq!(Some(result.peak_reserved), result.recorded_peak, "{path}, device {}", trace.device);
        }
    }
}
