//! What replays must do.

use std::path::PathBuf;

use stalloc_trace::{Input, RawEvent, Recording, SegmentAction, StackId, TraceBuilder, open};

use crate::{Kind, Options, replay};

mod clock;
mod continued;
mod gmlake;
mod random;
mod recordings;

/// Recorded traces of the folder that `STALLOC_RECORDINGS` names.
fn recordings() -> Vec<(String, Recording)> {
    let data = PathBuf::from(std::env::var_os("STALLOC_RECORDINGS").expect("STALLOC_RECORDINGS names the folder"));
    let mut paths: Vec<PathBuf> = ["snapshots", "traces"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(data.join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let read = |path: PathBuf| match open(&path, &mut |_, _| {}) {
        Ok(Input::Recording(recording)) => Some((path.display().to_string(), recording)),
        Ok(_) => None,
        Err(error) => panic!("{error}"),
    };
    paths.into_iter().filter_map(read).collect()
}

/// Of two cached blocks of one size PyTorch up to 2.14 takes the lower one, and the driver put the newer segment there.
#[test]
fn the_block_that_is_used_again_is_the_version_s() {
    const MIB: u64 = 1 << 20;
    let mut builder = TraceBuilder::new(0);
    for address in [2, 1] {
        let (address, size) = (address << 40, 100 * MIB);
        builder.push(RawEvent::Segment { action: SegmentAction::Alloc, address, size, stream: 0 }, None);
        builder.push(RawEvent::Alloc { address, size, stream: 0, stack: StackId::NONE }, None);
    }
    for address in [2, 1] {
        builder.push(RawEvent::FreeCompleted { address: address << 40, size: 0, stream: 0 }, None);
    }
    builder.push(RawEvent::Alloc { address: 3 << 40, size: 100 * MIB, stream: 0, stack: StackId::NONE }, None);
    let mut trace = builder.finish();
    for (version, again) in [(None, 1), (Some("2.9.1+cu128"), 1), (Some("2.14.0"), 1), (Some("2.15.0+cu132"), 0)] {
        trace.metadata.clear();
        trace.metadata.extend(version.map(|version| ("torch".to_owned(), version.to_owned())));
        let places = replay(&trace, Kind::Pytorch, &Options::default(), &mut |_, _| {}).unwrap().placements;
        assert_eq!(places[2].address, places[again].address, "{version:?}");
    }
}
