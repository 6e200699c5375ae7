//! What a fault in the core costs.
#![allow(clippy::unwrap_used)]

use std::ops::Range;

use super::*;

/// A peer that cannot reach the memory.
const UNREACHABLE: u32 = 5;

/// Serves one address after the other, and panics where it is told to.
struct Faulty {
    next: Address,
    in_serve: bool,
    in_free: bool,
}

impl Serving for Faulty {
    fn serve(&mut self, size: u64, _: Stream) -> Option<Served> {
        assert!(!self.in_serve, "a fault");
        self.next += size;
        let (address, source) = (self.next - size, stalloc_allocator::ServedBy::BestFit);
        Some(Served { address, bytes: size.next_multiple_of(512), reserved: 0, source, departed: false })
    }
    fn free(&mut self, _: Address) -> Option<Freed> {
        assert!(!self.in_free, "a fault");
        None
    }
    fn free_told(&mut self, address: Address) -> Option<LiveBlock> {
        self.free(address).and(None)
    }
    fn record_stream(&mut self, _: Address, _: Stream) -> Result<(), Error> {
        panic!("a fault")
    }
    fn allow_peer(&mut self, peer: u32) -> Result<(), Error> {
        if peer == UNREACHABLE { Err(Error::Plan("no way there".into())) } else { Ok(()) }
    }
    fn set_capturing(&mut self, _: bool) {}
    fn step_begin(&mut self) {}
    fn give_back(&mut self, _: u64) -> Result<u64, Error> {
        Ok(0)
    }
    fn give_back_idle(&mut self) -> Result<u64, Error> {
        Ok(0)
    }
    fn take_journal(&mut self, _: &mut Vec<stalloc_allocator::JournalEvent>) -> bool {
        true
    }
    fn frame_bytes(&self) -> Option<u64> {
        None
    }
    fn handles(&mut self, _: &LiveBlock) -> Option<Vec<Range<Address>>> {
        None
    }
    fn export(&mut self, _: Address) -> Result<std::os::fd::OwnedFd, Error> {
        panic!("a fault")
    }
    fn propose(&mut self, _: stalloc_allocator::Script, _: &stalloc_allocator::FrameSet) -> bool {
        false
    }
    fn rivals_hold(&mut self, _: u64, _: u64) {
        unreachable!()
    }
    fn take_retired(&mut self) -> Option<Box<stalloc_allocator::Script>> {
        None
    }
    fn block_around(&self, _: Address) -> Option<LiveBlock> {
        None
    }
    fn blocks(&self) -> Vec<LiveBlock> {
        Vec::new()
    }
    fn addresses(&self) -> Range<Address> {
        4096..1 << 20
    }
    fn mapped(&self) -> Vec<Range<Address>> {
        Vec::new()
    }
    fn pool_begin(&mut self, _: PoolId) -> bool {
        true
    }
    fn pool_end(&mut self, _: PoolId) {}
    fn pool_serve(&mut self, _: PoolId, _: u64, _: Stream) -> Option<Served> {
        panic!("a fault")
    }
    fn pool_parts(&self) -> Vec<stalloc_allocator::PoolPart> {
        Vec::new()
    }
    fn pool_restore(&mut self, _: PoolId, _: &[LiveBlock]) -> (Vec<LiveBlock>, Vec<LiveBlock>) {
        panic!("a fault")
    }
    fn has_departed(&self) -> bool {
        false
    }
    fn can_sleep(&self) -> Result<(), Error> {
        Ok(())
    }
    fn sleep(&mut self, _: &[Range<Address>], _: &[Range<Address>]) -> Result<stalloc_allocator::Moved, Error> {
        panic!("a fault")
    }
    fn wake(&mut self, _: &[Range<Address>]) -> Result<stalloc_allocator::Moved, Error> {
        panic!("a fault")
    }
    fn asleep(&self) -> Option<u64> {
        None
    }
    fn sleeps_at(&self, _: Address) -> bool {
        false
    }
    fn is_solid(&self) -> bool {
        false
    }
    fn reserved(&self) -> u64 {
        0
    }
    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}

fn given(open: Open) -> LockedArena {
    let locked = LockedArena::new();
    assert!(locked.prepare(Plan::default(), open));
    locked
}

fn opened(in_serve: bool, in_free: bool) -> Result<Box<dyn Serving>, Error> {
    Ok(Box::new(Faulty { next: 4096, in_serve, in_free }))
}

#[test]
fn after_a_fault_in_a_request_the_fallback_serves() {
    let locked = given(|_| opened(true, false));
    assert_eq!(locked.serve(512, 0), (None, false));
    assert_eq!(locked.serve(512, 0), (None, false));
}

#[test]
fn after_a_fault_in_a_pool_the_fallback_serves() {
    let locked = given(|_| opened(false, false));
    assert!(locked.pool_begin((0, 1)));
    assert_eq!(locked.pool_serve((0, 1), 512, 0), None);
    assert!(!locked.pool_begin((0, 1)), "nothing more is served");
    assert_eq!(locked.pool_restore((0, 1), &[]), (Vec::new(), Vec::new()));
}

#[test]
fn after_a_fault_in_a_free_nothing_more_is_served() {
    let locked = given(|_| opened(false, true));
    assert!(locked.serve(512, 0).0.is_some());
    assert_eq!(locked.free(4096), None);
    assert_eq!(locked.serve(512, 0), (None, false));
}

#[test]
fn after_a_fault_in_anything_else_nothing_more_is_served() {
    let locked = given(|_| opened(false, false));
    assert!(locked.serve(512, 0).0.is_some());
    assert!(locked.with(|arena| arena.record_stream(4096, 1)).is_none());
    assert_eq!(locked.serve(512, 0), (None, false));
}

#[test]
fn a_plan_that_faults_when_it_is_opened_costs_the_plan_only() {
    let locked = given(|_| panic!("a fault"));
    assert_eq!(locked.serve(512, 0), (None, false));
    assert!(locked.report().is_none());
}

#[test]
fn a_peer_that_cannot_reach_an_arena_is_said_so_and_one_that_is_named_too_early_keeps_the_arena_shut() {
    let arena = given(|_| opened(false, false));
    assert!(arena.serve(512, 0).0.is_some());
    assert!(arena.allow_peer(1));
    assert!(!arena.allow_peer(UNREACHABLE));
    assert!(!arena.allow_peer(64));
    let arena = given(|_| opened(false, false));
    assert!(arena.allow_peer(UNREACHABLE), "nobody knows yet");
    assert!(arena.serve(512, 0).0.is_none());
}
