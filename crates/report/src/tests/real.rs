//! Real recordings, of the folder that `STALLOC_RECORDINGS` names.

use std::path::{Path, PathBuf};

use crate::{Report, prepare};

/// Every recording of the folder.
fn recordings() -> Vec<PathBuf> {
    let data = std::env::var_os("STALLOC_RECORDINGS").expect("STALLOC_RECORDINGS names the folder");
    let mut files: Vec<PathBuf> = ["snapshots", "traces"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(Path::new(&data).join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

#[test]
#[ignore = "needs real recordings: STALLOC_RECORDINGS=FOLDER"]
fn figures_of_real_recordings_agree_with_each_other() {
    for path in recordings() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let stalloc_trace::Input::Recording(recording) = stalloc_trace::open(&path, &mut |_, _| {}).unwrap() else {
            panic!("{name} is no recording")
        };
        let inputs = [prepare(&name, recording, &mut |_, _, _| {})];
        let report = Report::new(&inputs);
        for (device, subject) in report.figures().inputs[0].devices.iter().zip(&inputs[0].devices) {
            let name = format!("{name}, device {}", device.device);
            if let Some(happened) = device.allocators.iter().find(|one| one.allocator == "actual") {
                assert_eq!(Some(happened.peak_reserved), subject.trace.peak_reserved(), "{name}");
            }
            let by_category: u64 = device.categories.iter().map(|one| one.bytes_at_peak).sum();
            assert!(device.categories.is_empty() || by_category == device.peak_allocated, "{name}");
            for one in &device.allocators {
                let holes = &one.holes;
                assert_eq!(one.wasted, one.peak_reserved.saturating_sub(one.peak_allocated), "{name}");
                // Everything held is either a block or a hole.
                let sum = holes.holes_bytes + holes.allocated_at_peak;
                assert!(
                    sum == holes.reserved_at_peak,
                    "{name}, {}: {sum} of {}",
                    one.allocator,
                    holes.reserved_at_peak
                );
                assert!(holes.holes.is_sorted_by_key(|hole| std::cmp::Reverse(hole.bytes)), "{name}");
                assert!(holes.reserved_at_peak >= one.peak_reserved - one.peak_reserved / 100, "{name}");
            }
            let causes: u64 = device.causes.iter().map(|cause| cause.bytes).sum();
            let plan = device.allocators.iter().find(|one| one.allocator == "stalloc");
            assert!(plan.is_none_or(|plan| causes == plan.wasted), "{name}: {causes}");
        }
        assert!(report.html().unwrap().len() < 2_000_000, "{name}");
    }
}
