//! The process-wide arenas over real host memory: what is served is apart, and everything finds its way back.

use std::collections::BTreeMap;

use stalloc_plan::{Entry, FOREVER, Plan, Section, SectionKind, Slot};
use stalloc_runtime::{HOST, arena, block_around, blocks, free, prepare, report, serve, step_begin};

fn plan() -> Plan {
    let slot = |size: u64, offset: u64, lower: u32, upper: u32| Slot { size, offset, stream: 0, lower, upper };
    let section = |kind, name: &str, entries: std::ops::Range<u32>, followers: Vec<u32>| Section {
        kind,
        name: name.into(),
        runs: 2,
        entries: entries.map(Entry::Slot).collect(),
        releases: Vec::new(),
        followers,
    };
    Plan {
        alignment: 512,
        arena: 5120,
        lower_bound: 5120,
        slots: vec![slot(1024, 0, 0, FOREVER), slot(2048, 1024, 0, 2), slot(2048, 3072, 1, 2), slot(4096, 1024, 2, 3)],
        sections: vec![
            section(SectionKind::Prologue, "prologue", 0..1, vec![1]),
            section(SectionKind::Repeating, "step", 1..4, vec![1]),
        ],
        trace_map: Vec::new(),
        metadata: BTreeMap::new(),
        ..Plan::default()
    }
}

/// One test, since a process has one arena for its host memory.
#[test]
fn a_program_on_its_plan_gets_the_planned_addresses_and_a_stray_request_is_the_fallbacks_or_apart() {
    assert!(plan().check().ok, "{:?}", plan().check().problems);
    assert!(serve(HOST, 1000, 0).is_none(), "nothing is planned yet");
    assert!(prepare(HOST, plan()));
    assert!(!prepare(HOST, plan()), "one plan for a device");
    assert!(!prepare(1000, plan()), "no such device");

    let weight = serve(HOST, 1000, 0).expect("planned");
    assert_eq!(weight.bytes, 1024);
    let base = weight.address;
    for step in 0..3 {
        step_begin();
        let a = serve(HOST, 2048, 0).expect("planned");
        let b = serve(HOST, 2000, 0).expect("planned");
        assert_eq!((a.address - base, b.address - base), (1024, 3072), "step {step}");
        assert_eq!(
            block_around(b.address + 100).map(|block| (block.address, block.requested)),
            Some((b.address, 2000))
        );
        assert_eq!(blocks(HOST).len(), 3);
        let (device, block) = free(b.address).expect("live");
        assert_eq!((device, block.size), (HOST, 2048));
        assert!(free(b.address).is_none(), "freed already");
        free(a.address).expect("live");
        let c = serve(HOST, 4096, 0).expect("planned");
        assert_eq!(c.address - base, 1024);
        free(c.address).expect("live");
    }
    let (range, _) = arena(HOST).expect("open");
    assert!(range.contains(&base));
    if let Some(stray) = serve(HOST, 7000, 0) {
        assert!(stray.address >= base + 1024 && stray.address + stray.bytes <= range.end, "clear of the weight");
    }
    let report = report(HOST).expect("open");
    assert_eq!((report.arena.planned, report.arena.steps), (10, 3));
    assert!(report.peak_reserved >= report.arena.peak_allocated);
}
