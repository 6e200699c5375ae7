//! A plan's file is either whole and ours, or refused with the reason.

use std::error::Error;

use proptest::prelude::*;
use stalloc_plan::{
    CARRIED, Entry, FORMAT_VERSION, Plan, Release, Section, SectionKind, Slot, decode, encode, read, write,
};

fn sample() -> Plan {
    let slot = |offset, lower, upper| Slot { size: 512, offset, stream: 0, lower, upper };
    Plan {
        fingerprint: 7,
        alignment: 512,
        arena: 2048,
        lower_bound: 1536,
        slots: vec![slot(0, 0, CARRIED), slot(512, 1, 2)],
        sections: vec![Section {
            kind: SectionKind::Repeating,
            name: "step".into(),
            runs: 3,
            entries: vec![Entry::Slot(0), Entry::Slot(1)],
            releases: vec![Release { at: 0, slot: 0 }],
            followers: vec![0],
        }],
        trace_map: vec![Some(0), Some(1), None],
        ..Plan::default()
    }
}

#[test]
fn a_plan_read_is_the_plan_written() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("a.plan");
    write(&path, &sample())?;
    assert_eq!(read(&path)?, sample());
    assert_eq!(std::fs::read_dir(directory.path())?.count(), 1, "nothing is left next to the plan");
    Ok(())
}

#[test]
fn a_failed_write_leaves_the_plan_that_was_there() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("taken");
    std::fs::create_dir(&path)?;
    assert!(write(&path, &sample()).is_err());
    assert_eq!(std::fs::read_dir(directory.path())?.count(), 1);
    Ok(())
}

#[test]
fn what_is_no_plan_is_refused_with_the_reason() -> Result<(), Box<dyn Error>> {
    let good = encode(&sample())?;
    let reason = |bytes: &[u8]| decode(bytes).err().map(|reason| reason.to_string()).unwrap_or_default();
    assert!(reason(b"").contains("not a stalloc plan"));
    assert!(reason(b"PK\x03\x04 something else").contains("not a stalloc plan"));
    assert!(reason(&good[..good.len() - 1]).contains("damaged"));
    assert!(reason(&good[..20]).contains("damaged"));
    let mut later = good.clone();
    later[8] = 9;
    assert!(reason(&later).contains("plan format 9"));
    let mut longer = good.clone();
    longer.push(0);
    assert!(reason(&longer).contains("damaged"));
    Ok(())
}

/// Wraps content as a plan's file does, with a right checksum.
fn wrap(content: &[u8]) -> Vec<u8> {
    let body = zstd::bulk::compress(content, 1).unwrap_or_default();
    let mut bytes = b"STALPLAN".to_vec();
    bytes.extend(FORMAT_VERSION.to_le_bytes());
    bytes.extend(crc32fast::hash(&body).to_le_bytes());
    bytes.extend((body.len() as u64).to_le_bytes());
    bytes.extend(body);
    bytes
}

#[test]
fn content_that_unpacks_to_a_giant_is_refused() {
    // 300 MB of zeros take some 10 kB.
    let bytes = wrap(&vec![0; 300 << 20]);
    assert!(bytes.len() < 100_000);
    let reason = decode(&bytes).err().map(|reason| reason.to_string());
    assert!(reason.is_some_and(|reason| reason.contains("over 268435456 bytes")));
}

#[test]
fn a_length_that_promises_more_than_is_there_takes_no_memory() {
    // device, fingerprint, alignment, arena, lower bound, then a vector of 2^60 slots.
    let mut content = vec![0, 0, 1, 0, 0];
    content.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    assert!(decode(&wrap(&content)).is_err());
}

#[test]
fn a_plan_that_the_runtime_could_not_follow_is_refused() -> Result<(), Box<dyn Error>> {
    let faults: [fn(&mut Plan); 9] = [
        |plan| plan.sections[0].entries[1] = Entry::Slot(9),
        |plan| plan.sections[0].entries[1] = Entry::WithoutOffset { size: 0, stream: 0 },
        |plan| plan.slots[1].size = 0,
        |plan| plan.sections[0].followers = vec![4],
        |plan| plan.sections[0].releases[0].slot = 1,
        |plan| plan.sections[0].releases[0].at = 3,
        |plan| plan.slots[1].lower = 0,
        |plan| plan.trace_map[0] = Some(2),
        |plan| plan.alignment = 0,
    ];
    for (i, fault) in faults.iter().enumerate() {
        let mut plan = sample();
        fault(&mut plan);
        assert!(decode(&encode(&plan)?).is_err(), "fault {i} was believed");
    }
    Ok(())
}

#[test]
fn what_fuzzing_starts_from_is_a_plan() -> Result<(), Box<dyn Error>> {
    let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/plan");
    let file = std::fs::read(seeds.join("file"))?;
    let plan = decode(&file)?;
    assert!(plan.sections.iter().any(|section| section.kind == SectionKind::Repeating));
    assert_eq!(decode(&wrap(&std::fs::read(seeds.join("content"))?))?, plan);
    Ok(())
}

proptest! {
    #[test]
    fn a_changed_byte_is_noticed(at in 0usize..1000, change in 1u8..=255) {
        let mut bytes = encode(&sample()).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let at = at % bytes.len();
        bytes[at] ^= change;
        prop_assert!(decode(&bytes).is_err());
    }

    #[test]
    fn random_content_is_refused_or_a_valid_plan(content in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(plan) = decode(&wrap(&content)) {
            prop_assert_eq!(plan.validate(), Ok(()));
            let _ = plan.check();
        }
    }
}
