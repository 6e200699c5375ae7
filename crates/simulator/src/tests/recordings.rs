//! Real recordings.

use super::*;
use crate::fidelity::{Dialect, compare};
use crate::{Kind, Options, actual_peak_reserved, replay};

#[test]
#[ignore = "needs real recordings: STALLOC_RECORDINGS=FOLDER"]
fn what_was_recorded_happens_again_address_for_address() {
    for (path, recording) in recordings() {
        for trace in recording.traces {
            let result = compare(&trace, None).unwrap();
            assert_eq!(result.difference, None, "{path}, device {}", trace.device);
            assert_eq!(Some(result.peak_reserved), result.recorded_peak, "{path}, device {}", trace.device);
        }
    }
}

#[test]
#[ignore = "needs real recordings: STALLOC_RECORDINGS=FOLDER"]
fn a_replay_of_the_recorded_allocator_reserves_what_it_did() {
    for (path, recording) in recordings() {
        for trace in recording.traces {
            let recorded = compare(&trace, None).unwrap();
            if recorded.dialect == Dialect::TorchNpu {
                continue;
            }
            let kind = if recorded.expandable { Kind::PytorchExpandable } else { Kind::Pytorch };
            let replay = replay(&trace, kind, &Options::default(), &mut |_, _| {}).unwrap();
            assert_eq!(Some(replay.peak_reserved), actual_peak_reserved(&trace), "{path}, device {}", trace.device);
            assert_eq!(replay.peak_allocated, trace.peak_allocated(), "{path}, device {}", trace.device);
        }
    }
}

#[test]
#[ignore = "needs real recordings: STALLOC_RECORDINGS=FOLDER"]
fn no_replay_reserves_more_than_the_device_has() {
    for (path, recording) in recordings() {
        for trace in recording.traces {
            let capacity = trace.peak_allocated();
            let options = Options { capacity: Some(capacity), ..Options::default() };
            for kind in [Kind::Pytorch, Kind::PytorchExpandable, Kind::Gmlake] {
                let replay = replay(&trace, kind, &options, &mut |_, _| {}).unwrap();
                assert!(replay.peak_reserved <= capacity, "{path}, device {}, {}", trace.device, kind.name());
            }
        }
    }
}
