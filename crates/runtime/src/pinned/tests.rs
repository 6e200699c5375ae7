#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use proptest::prelude::*;
use stalloc_order::{Moment, WorkOrder};

use super::*;

const MIB: u64 = 1 << 20;

/// Page-locked memory that is numbers alone; events complete late, by chance, and every use of a block is checked.
struct Checked {
    order: RefCell<WorkOrder>,
    next: Cell<Address>,
    held: RefCell<BTreeMap<Address, u64>>,
    most: Cell<u64>,
    /// Calls that the driver refuses: of these kinds.
    refuses_events: Cell<bool>,
    takes: Cell<u32>,
}

impl Checked {
    fn new(seed: Option<u64>) -> Self {
        Checked {
            order: RefCell::new(WorkOrder::new(seed)),
            next: Cell::new(UNIT),
            held: RefCell::default(),
            most: Cell::new(u64::MAX),
            refuses_events: Cell::new(false),
            takes: Cell::new(0),
        }
    }

    fn held(&self) -> u64 {
        self.held.borrow().values().sum()
    }
}

const REFUSED: Error = Error::Unsupported("do that");

impl PageLocked for Checked {
    type Event = Moment;

    fn alloc(&self, _: u32, bytes: u64) -> Result<Address, Error> {
        self.takes.set(self.takes.get() + 1);
        if self.held() + bytes > self.most.get() {
            return Err(Error::OutOfMemory { requested: bytes, free: 0, total: 0 });
        }
        let address = self.next.get();
        self.next.set(address + bytes + UNIT);
        self.held.borrow_mut().insert(address, bytes);
        Ok(address)
    }

    fn free(&self, _: u32, address: Address) -> Result<(), Error> {
        let bytes = self.held.borrow_mut().remove(&address).unwrap();
        self.order.borrow_mut().unmapped(address, bytes).unwrap();
        Ok(())
    }

    fn record(&self, device: u32, stream: Stream) -> Result<Moment, Error> {
        if self.refuses_events.get() {
            return Err(REFUSED);
        }
        Ok(self.order.borrow_mut().record(name((device, stream))))
    }

    fn completed(&self, event: &Moment) -> Result<bool, Error> {
        if self.refuses_events.get() { Err(REFUSED) } else { Ok(self.order.borrow_mut().completed(event)) }
    }
}

/// Streams of two GPUs are two, though both are called 0.
fn name((device, stream): User) -> Stream {
    u64::from(device) << 32 | stream
}

/// A program: what it has, and that nobody else has it.
struct Program {
    pinned: Pinned<Checked>,
    live: Vec<(Address, u64)>,
}

impl Program {
    fn new(seed: Option<u64>) -> Self {
        Program { pinned: Pinned::new(Checked::new(seed)), live: Vec::new() }
    }

    fn device(&self) -> &Checked {
        &self.pinned.device
    }

    fn serve(&mut self, size: u64) -> Option<Address> {
        let address = self.pinned.serve(0, size)?;
        self.device().order.borrow_mut().handed_out(address, size.max(1), HOST).unwrap();
        self.live.push((address, size));
        Some(address)
    }

    fn use_on(&self, address: Address, user: User) {
        assert!(self.pinned.record(address, user));
        self.device().order.borrow_mut().used_on(address, name(user));
    }

    fn free(&mut self, address: Address) {
        self.live.retain(|&(other, _)| other != address);
        self.device().order.borrow_mut().given_back(address);
        assert!(self.pinned.free(address));
    }
}

#[test]
fn a_block_is_handed_out_again_only_when_all_streams_that_used_it_are_done() {
    let mut program = Program::new(None);
    let block = program.serve(MIB).unwrap();
    program.use_on(block + 5, (0, 7));
    program.use_on(block, (1, 0));
    program.device().order.replace(WorkOrder::new(Some(1)));
    program.device().order.borrow_mut().handed_out(block, MIB, HOST).unwrap();
    program.free(block);
    let counters = program.pinned.counters(false, false);
    assert_eq!((counters.blocks.current, counters.requested.current), (1, 0), "a stream has it");
    let mut others = Vec::new();
    while others.last() != Some(&block) {
        others.push(program.pinned.serve(0, MIB).unwrap());
        assert!(others.len() < 200, "it comes back in the end");
    }
    assert!(others.len() > 1, "not at once");
}

#[test]
fn requests_of_a_step_that_repeats_take_no_memory_after_the_second() {
    let mut program = Program::new(None);
    let mut after_the_second = 0;
    for step in 0..5 {
        let blocks: Vec<_> = (1..40).map(|size| program.serve(size * 100_000).unwrap()).collect();
        blocks.into_iter().for_each(|block| {
            program.use_on(block, (0, 1));
            program.free(block);
        });
        match step {
            0 => {}
            1 => after_the_second = program.device().takes.get(),
            _ => assert_eq!(program.device().takes.get(), after_the_second),
        }
    }
    assert!(after_the_second < 42, "{after_the_second}");
}

#[test]
fn when_the_host_has_no_more_what_is_idle_goes_and_then_the_request_is_pytorchs() {
    let mut program = Program::new(None);
    program.device().most.set(10 * MIB);
    let first = program.serve(6 * MIB).unwrap();
    assert_eq!(program.serve(6 * MIB), None);
    program.free(first);
    let second = program.serve(9 * MIB).unwrap();
    assert_eq!(program.device().held(), 9 * MIB, "the idle region went for it, and no more than it was taken");
    assert_eq!(program.serve(2 * MIB), None);
    assert_eq!(program.serve(900_000).map(|address| address == second), Some(false));
    program.free(second);
    assert_eq!(program.pinned.trim(), 9 * MIB);
}

#[test]
fn a_block_whose_streams_cannot_be_asked_is_never_handed_out_again() {
    let mut program = Program::new(None);
    let block = program.serve(MIB).unwrap();
    program.use_on(block, (0, 1));
    program.device().refuses_events.set(true);
    program.free(block);
    program.device().refuses_events.set(false);
    let other = program.serve(MIB).unwrap();
    program.use_on(other, (0, 1));
    program.free(other);
    program.device().refuses_events.set(true);
    for _ in 0..4 {
        assert!(![block, other].contains(&program.serve(MIB).unwrap()));
    }
    assert!(!program.pinned.free(block) && !program.pinned.free(12345));
    assert!(!program.pinned.record(block, (0, 1)), "nobody has it");
}

#[test]
fn while_a_graph_is_captured_nothing_is_served_and_no_event_is_used() {
    let mut program = Program::new(None);
    let (used, unused) = (program.serve(MIB).unwrap(), program.serve(MIB).unwrap());
    program.use_on(used, (3, 9));
    program.pinned.set_capturing(3, true);
    program.pinned.set_capturing(1, true);
    program.device().refuses_events.set(true);
    program.free(used);
    program.free(unused);
    assert_eq!(program.serve(MIB), None);
    program.pinned.set_capturing(1, false);
    assert_eq!(program.serve(MIB), None);
    program.device().refuses_events.set(false);
    program.pinned.set_capturing(3, false);
    let again = [program.serve(MIB).unwrap(), program.serve(MIB).unwrap()];
    assert!(again.contains(&used) && again.contains(&unused));
}

#[test]
fn what_is_counted_is_what_there_is() {
    let mut program = Program::new(None);
    let block = program.serve(5000).unwrap();
    program.serve(3 * MIB).unwrap();
    program.free(block);
    let counted = program.pinned.counters(true, true);
    assert_eq!(counted.blocks, Counter { current: 1, peak: 2, allocated: 2, freed: 1 });
    assert_eq!(
        counted.requested,
        Counter { current: 3 * MIB, peak: 3 * MIB + 5000, allocated: 3 * MIB + 5000, freed: 5000 }
    );
    assert_eq!(counted.bytes.peak, 3 * MIB + 2 * UNIT);
    assert_eq!(counted.reserved.current, program.device().held());
    assert_eq!(counted.taking.count, 2);
    let anew = program.pinned.counters(false, false);
    assert_eq!(anew.blocks, Counter { current: 1, peak: 1, allocated: 0, freed: 0 });
    assert_eq!((anew.taking.count, anew.taking.longest), (0, 0));
}

#[test]
fn a_fault_ends_the_serving_and_nothing_else() {
    let mut program = Program::new(None);
    let block = program.serve(1).unwrap();
    program.pinned.retire();
    assert_eq!(program.serve(1), None);
    program.free(block);
}

proptest! {
    #[test]
    fn random_programs_never_get_memory_that_a_stream_may_still_use(
        seed in 1u64..u64::MAX,
        acts in prop::collection::vec((0u8..20, 1u64..3 * MIB, 0usize..64), 1..300),
    ) {
        let mut program = Program::new(Some(seed));
        program.device().most.set(24 * MIB);
        for (act, size, pick) in acts {
            let chosen = (!program.live.is_empty()).then(|| program.live[pick % program.live.len()]);
            match (act, chosen) {
                (0..8, _) => {
                    program.serve(size);
                }
                (8..12, Some((address, bytes))) => program.use_on(address + size % bytes, (size as u32 % 2, size % 3)),
                (12..17, Some((address, _))) => program.free(address),
                (17, _) => program.pinned.set_capturing(pick as u32 % 2, size % 2 == 0),
                (18, _) => program.device().order.borrow_mut().wait_for_all(),
                _ => {
                    program.pinned.trim();
                }
            }
            let counted = program.pinned.counters(false, false);
            prop_assert_eq!(counted.reserved.current, program.device().held());
            prop_assert_eq!(counted.requested.current, program.live.iter().map(|&(_, bytes)| bytes).sum::<u64>());
        }
        (0..2).for_each(|device| program.pinned.set_capturing(device, false));
        program.device().order.borrow_mut().wait_for_all();
        for (address, _) in program.live.clone() {
            program.free(address);
        }
        program.device().order.borrow_mut().wait_for_all();
        program.pinned.trim();
        prop_assert_eq!(program.device().held(), 0, "nothing is lost");
    }
}
