//! Sleep: contents go to the host and come back to the same addresses, whatever a program does and wherever the device refuses.
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use proptest::prelude::*;
use stalloc_allocator::{Arena, Error, GRANULE};
use stalloc_device::{Address, Counting, Device, DriverWork, MemoryInfo, Stream};
use stalloc_plan::Plan;

const MIB: u64 = 1 << 20;

type Contents = Rc<RefCell<BTreeMap<u64, u64>>>;

/// A device whose memory keeps a number for each granule, as long as it is mapped anywhere. Copies are made when it is waited for.
struct Keeping {
    device: Counting,
    mapped: BTreeMap<Address, (u64, Contents)>,
    host: Contents,
    queued: Vec<(Address, Address, u64)>,
    copied: Vec<u64>,
    /// Refuses the call after so many.
    refuses: Option<u32>,
    /// Leaves the copy of this number out, or makes it in the place of the next.
    broken: Option<Broken>,
    /// Where the copy would have gone that was left out.
    left_out: Range<Address>,
}

#[derive(Clone, Copy, Debug)]
enum Broken {
    LeftOut,
    Swapped,
}

#[derive(Clone)]
struct Handle(Rc<RefCell<Keeping>>);

const HOST: Address = 1 << 60;

impl Keeping {
    /// The parts of memory that some addresses lie in, by where each begins among them: its contents, and which granules of them.
    fn parts(&self, start: Address, bytes: u64) -> Vec<(u64, Contents, Range<u64>)> {
        if start >= HOST {
            return vec![(0, Rc::clone(&self.host), start / GRANULE..(start + bytes) / GRANULE)];
        }
        let (mut at, mut parts) = (start, Vec::new());
        while at < start + bytes {
            let (&first, (length, contents)) = self.mapped.range(..=at).next_back().expect("nothing is mapped there");
            assert!(at < first + length, "{at:#x} has no memory");
            let end = (first + length).min(start + bytes);
            let granules = (at - first) / GRANULE..(end - first) / GRANULE;
            parts.push(((at - start) / GRANULE, Rc::clone(contents), granules));
            at = end;
        }
        parts
    }

    fn read(&self, start: Address, bytes: u64) -> BTreeMap<u64, u64> {
        let mut read = BTreeMap::new();
        for (first, contents, granules) in self.parts(start, bytes) {
            let begin = granules.start;
            read.extend(contents.borrow().range(granules).map(|(&granule, &value)| (first + granule - begin, value)));
        }
        read
    }

    fn write(&self, start: Address, bytes: u64, values: &BTreeMap<u64, u64>) {
        for (first, contents, granules) in self.parts(start, bytes) {
            let mut contents = contents.borrow_mut();
            let before: Vec<u64> = contents.range(granules.clone()).map(|(&granule, _)| granule).collect();
            before.into_iter().for_each(|granule| assert!(contents.remove(&granule).is_some()));
            let within = values.range(first..first + (granules.end - granules.start));
            contents.extend(within.map(|(&granule, &value)| (granule - first + granules.start, value)));
        }
    }

    /// Whether this call is refused.
    fn counted(&mut self) -> Result<(), stalloc_device::Error> {
        match &mut self.refuses {
            Some(0) => {
                self.refuses = None;
                Err(stalloc_device::Error::Driver { call: "the call", message: "refused".to_owned() })
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

type Refused<T> = Result<T, stalloc_device::Error>;

impl Device for Handle {
    type Event = ();

    fn alloc(&mut self, bytes: u64) -> Refused<Address> {
        self.0.borrow_mut().device.alloc(bytes)
    }
    fn free(&mut self, address: Address) -> Refused<()> {
        self.0.borrow_mut().device.free(address)
    }
    fn page_size(&self) -> Option<u64> {
        self.0.borrow().device.page_size()
    }
    fn reserve(&mut self, bytes: u64) -> Refused<Address> {
        self.0.borrow_mut().device.reserve(bytes)
    }
    fn release(&mut self, address: Address, bytes: u64) -> Refused<()> {
        self.0.borrow_mut().device.release(address, bytes)
    }
    fn map(&mut self, address: Address, bytes: u64) -> Refused<()> {
        let mut own = self.0.borrow_mut();
        own.counted()?;
        own.device.map(address, bytes)?;
        own.mapped.insert(address, (bytes, Contents::default()));
        Ok(())
    }
    fn alias(&mut self, from: Address, to: Address, bytes: u64) -> Refused<()> {
        let mut own = self.0.borrow_mut();
        own.counted()?;
        own.device.alias(from, to, bytes)?;
        let contents = Rc::clone(&own.mapped[&from].1);
        own.mapped.insert(to, (bytes, contents));
        Ok(())
    }
    fn unmap(&mut self, address: Address, bytes: u64) -> Refused<()> {
        let mut own = self.0.borrow_mut();
        own.counted()?;
        own.device.unmap(address, bytes)?;
        own.mapped.retain(|&start, _| !(address..address + bytes).contains(&start));
        Ok(())
    }
    fn alloc_host(&mut self, bytes: u64) -> Refused<Address> {
        assert!(bytes > 0, "a driver refuses that");
        let mut own = self.0.borrow_mut();
        own.counted()?;
        own.device.alloc(0).map(|address| HOST + address * (1 << 12))
    }
    fn free_host(&mut self, _address: Address) -> Refused<()> {
        Ok(())
    }
    fn copy(&mut self, to: Address, from: Address, bytes: u64, _lane: usize) -> Refused<()> {
        let mut own = self.0.borrow_mut();
        own.counted()?;
        own.queued.push((to, from, bytes));
        own.copied.push(bytes);
        Ok(())
    }
    fn driver_work(&self) -> DriverWork {
        self.0.borrow().device.driver_work()
    }
    fn memory_info(&self) -> Refused<MemoryInfo> {
        self.0.borrow().device.memory_info()
    }
    fn record(&mut self, _stream: Stream) -> Refused<()> {
        Ok(())
    }
    fn completed(&mut self, _event: &()) -> Refused<bool> {
        Ok(true)
    }
    fn wait(&mut self, _event: &()) -> Refused<()> {
        Ok(())
    }
    fn queue_wait(&mut self, _stream: Stream, _event: &()) -> Refused<()> {
        Ok(())
    }
    fn synchronize(&mut self) -> Refused<()> {
        let mut own = self.0.borrow_mut();
        let mut queued = std::mem::take(&mut own.queued);
        match own.broken {
            Some(Broken::LeftOut) => {
                own.left_out = queued.pop().map_or(0..0, |(to, _, bytes)| to..to + bytes);
            }
            Some(Broken::Swapped) if queued.len() > 1 => {
                (queued[0].1, queued[1].1) = (queued[1].1, queued[0].1);
                let bytes = queued[0].2.min(queued[1].2);
                (queued[0].2, queued[1].2) = (bytes, bytes);
            }
            _ => {}
        }
        for (to, from, bytes) in queued {
            own.write(to, bytes, &own.read(from, bytes));
        }
        own.counted()
    }
}

/// A program: its live blocks, and what it wrote into each granule of them.
struct Program {
    arena: Arena<Handle>,
    device: Handle,
    live: Vec<(Address, u64, u64)>,
    serial: u64,
}

impl Program {
    fn new(bytes: u64) -> Self {
        let device = Handle(Rc::new(RefCell::new(Keeping {
            device: Counting::new(bytes),
            mapped: BTreeMap::new(),
            host: Contents::default(),
            queued: Vec::new(),
            copied: Vec::new(),
            refuses: None,
            broken: None,
            left_out: 0..0,
        })));
        let mut arena = Arena::new(device.clone(), &Plan::default()).unwrap();
        assert!(arena.pool_begin((1, 1)));
        Program { arena, device, live: Vec::new(), serial: 0 }
    }

    /// What a block of this serial number holds: something in its first granules and here and there, and in the last.
    fn values(size: u64, serial: u64) -> BTreeMap<u64, u64> {
        let end = size.div_ceil(GRANULE);
        let granules = (0..end.min(40)).chain((40..end).step_by(501)).chain([end - 1]);
        granules.map(|granule| (granule, serial + granule)).collect()
    }

    fn wrote(&mut self, address: Option<Address>, size: u64) -> Option<Address> {
        let address = address?;
        self.serial += 1 << 20;
        self.device.0.borrow().write(address, size.next_multiple_of(GRANULE), &Program::values(size, self.serial));
        self.live.push((address, size, self.serial));
        Some(address)
    }

    fn malloc(&mut self, size: u64, stream: Stream) -> Option<Address> {
        let address = self.arena.serve(size, stream).map(|served| served.address);
        self.wrote(address, size)
    }

    fn pool_malloc(&mut self, size: u64) -> Option<Address> {
        let address = self.arena.pool_serve((1, 1), size, 0).map(|served| served.address);
        self.wrote(address, size)
    }

    fn free(&mut self, index: usize) {
        let (address, ..) = self.live.swap_remove(index);
        self.arena.free(address).unwrap();
    }

    fn free_at(&mut self, address: Address) {
        self.free(self.live.iter().position(|block| block.0 == address).unwrap());
    }

    /// Whether every byte of every block, those discarded excepted, is what was written.
    fn is_whole(&self, discarded: &[Address]) -> bool {
        let device = self.device.0.borrow();
        let kept = self.live.iter().filter(|(address, ..)| !discarded.contains(address));
        kept.into_iter().all(|&(address, size, serial)| {
            device.read(address, size.next_multiple_of(GRANULE)) == Program::values(size, serial)
        })
    }

    fn named(&self, addresses: &[Address]) -> Vec<Range<Address>> {
        let block = |address: &Address| self.live.iter().find(|block| block.0 == *address).unwrap();
        addresses.iter().map(block).map(|&(address, size, _)| address..address + size).collect()
    }

    fn held(&self) -> u64 {
        self.device.0.borrow().device.used()
    }

    /// Whether a call was refused; none is from now on.
    fn was_refused(&self) -> bool {
        let mut device = self.device.0.borrow_mut();
        let refused = device.refuses.is_none();
        device.refuses = None;
        refused
    }

    fn refuse_after(&self, calls: u32) {
        self.device.0.borrow_mut().refuses = Some(calls);
    }
}

/// Blocks of many sizes up to a largest, some of them given back, and a graph's pool with memory at several addresses.
fn busy(largest: u64) -> Program {
    let mut program = Program::new(4 << 30);
    let blocks: Vec<_> = (0..25)
        .map(|n| program.malloc([512, 70 * 512, MIB, 5 * MIB / 2 + 512, largest][n % 5], (n % 3) as u64).unwrap())
        .collect();
    blocks.iter().skip(1).step_by(3).for_each(|&block| program.free_at(block));
    let parts: Vec<_> = (0..4).map(|_| program.pool_malloc(3 * MIB).unwrap()).collect();
    parts.iter().for_each(|&part| program.free_at(part));
    program.pool_malloc(9 * MIB).unwrap();
    program.pool_malloc(512).unwrap();
    program
}

#[test]
fn all_memory_goes_and_every_byte_comes_back_to_its_address() {
    let mut program = busy(90 * MIB);
    let (held, live) = (program.held(), program.live.clone());
    let slept = program.arena.sleep(&[], &[]).unwrap();
    assert_eq!((program.held(), program.arena.reserved(), slept.memory), (0, 0, held));
    let exact: u64 = live.iter().map(|block| block.1.next_multiple_of(512)).sum();
    assert!((exact..exact + exact / 20).contains(&slept.bytes), "{} for {exact}", slept.bytes);
    assert!(slept.host >= slept.bytes && slept.host < slept.bytes + 4 * MIB);
    let large: Vec<u64> = program.device.0.borrow().copied.iter().copied().filter(|&bytes| bytes > 12 * MIB).collect();
    assert!(large.iter().all(|bytes| (16 * MIB..=64 * MIB).contains(bytes)) && large.len() > 5, "{large:?}");
    assert!(program.malloc(512, 0).is_none() && program.pool_malloc(512).is_none(), "nothing is served");
    let woken = program.arena.wake(&[]).unwrap();
    assert_eq!((program.held(), woken.bytes, program.arena.asleep()), (held, slept.bytes, None));
    assert!(program.is_whole(&[]));
    // The same requests again take no memory.
    let before = program.device.driver_work();
    program.malloc(MIB, 1).unwrap();
    assert_eq!(program.device.driver_work(), before);
}

#[test]
fn what_is_kept_stays_what_is_discarded_is_not_copied_and_what_is_freed_does_not_come_back() {
    let mut program = busy(90 * MIB);
    let large: Vec<_> = program.live.iter().filter(|block| block.1 == 90 * MIB).map(|block| block.0).collect();
    let (keep, discard, freed) = (large[0], large[1], large[2]);
    let held = program.held();
    assert!(!program.arena.sleeps_at(discard));
    let slept = program.arena.sleep(&program.named(&[keep]), &program.named(&[discard])).unwrap();
    assert_eq!(slept.memory, held - program.held());
    let asleep = [keep, keep + 89 * MIB, discard, discard + 89 * MIB, freed].map(|at| program.arena.sleeps_at(at));
    assert_eq!(asleep, [false, false, true, true, true]);
    assert!((90 * MIB..160 * MIB).contains(&program.held()), "{}", program.held());
    assert!(program.device.0.borrow().read(keep, 90 * MIB).len() > 40, "it is there");
    program.free_at(freed);
    assert!(program.arena.free(freed).is_err());
    // The rest can follow, and a second time there is nothing to do.
    let rest = program.arena.sleep(&[], &[]).unwrap();
    assert!(rest.bytes >= 90 * MIB && program.held() == 0);
    assert_eq!(program.arena.sleep(&[], &[]).unwrap().bytes, 0);
    let woken = program.arena.wake(&program.named(&[keep])).unwrap();
    assert!(woken.bytes <= slept.bytes + rest.bytes - 90 * MIB);
    assert!(program.is_whole(&[discard]));
    assert!(program.device.0.borrow().read(discard, 90 * MIB).is_empty(), "it was not copied");
}

#[test]
fn a_block_of_a_pool_that_is_kept_stays_where_it_is() {
    let mut program = busy(3 * MIB);
    let kept = program.live.iter().map(|block| (block.0, block.1)).find(|block| block.1 == 9 * MIB).unwrap();
    let before = program.device.0.borrow().read(kept.0, kept.1);
    program.arena.sleep(&program.named(&[kept.0]), &[]).unwrap();
    assert!(!before.is_empty() && program.device.0.borrow().read(kept.0, kept.1) == before);
    assert!((9 * MIB..30 * MIB).contains(&program.held()), "{}", program.held());
    program.arena.wake(&[]).unwrap();
    assert!(program.is_whole(&[]));
}

#[test]
fn a_thousand_sleeps_take_host_memory_once() {
    let mut program = busy(3 * MIB);
    let first = program.arena.sleep(&[], &[]).unwrap();
    program.arena.wake(&[]).unwrap();
    let held = program.held();
    for _ in 0..if cfg!(miri) { 2 } else { 1000 } {
        let slept = program.arena.sleep(&[], &[]).unwrap();
        program.arena.wake(&[]).unwrap();
        assert_eq!((slept, program.held()), (first, held));
    }
    assert!(program.is_whole(&[]));
}

#[test]
fn what_cannot_sleep_is_refused_before_anything_is_copied() {
    let mut program = busy(3 * MIB);
    program.arena.set_capturing(true);
    let Err(Error::Sleep(why)) = program.arena.sleep(&[], &[]) else { panic!("a capture is not refused") };
    assert!(why.contains("being captured") && program.device.0.borrow().copied.is_empty(), "{why}");
    let mut solid = Arena::solid(Counting::new(1 << 30), &Plan::default(), 1 << 20).unwrap();
    assert!(matches!(solid.sleep(&[], &[]), Err(Error::Sleep(why)) if why.contains("one allocation")));
}

#[test]
fn wherever_the_device_refuses_to_let_it_sleep_no_byte_is_lost_and_a_second_call_goes_on() {
    for calls in 0.. {
        let mut program = busy(3 * MIB);
        let held = program.held();
        program.refuse_after(calls);
        let slept = program.arena.sleep(&[], &[]);
        if !program.was_refused() {
            assert!(slept.is_ok() && calls > 40, "{calls} calls in all");
            break;
        }
        assert!(slept.unwrap_err().to_string().contains("refused"));
        // Half of them go on, half go back.
        if calls % 2 == 0 {
            program.arena.sleep(&[], &[]).unwrap();
            assert_eq!(program.held(), 0);
        }
        program.arena.wake(&[]).unwrap();
        assert!(program.is_whole(&[]), "after {calls} calls");
        assert_eq!((program.held(), program.arena.asleep()), (held, None), "after {calls} calls");
    }
}

#[test]
fn wherever_the_device_refuses_to_let_it_wake_all_sleeps_on_and_a_second_call_wakes_it() {
    let mut errors = 0;
    for calls in 0.. {
        let mut program = busy(3 * MIB);
        let held = program.held();
        program.arena.sleep(&[], &[]).unwrap();
        program.refuse_after(calls);
        let woken = program.arena.wake(&[]);
        let refused = program.was_refused();
        if woken.is_err() {
            errors += 1;
            assert_eq!(program.held(), 0, "what is asleep holds nothing");
            program.arena.wake(&[]).unwrap();
        }
        assert!(program.is_whole(&[]), "after {calls} calls");
        // Where no block is, memory that is refused is taken when it is needed.
        let all = woken.is_err() || !refused;
        assert!(if all { program.held() == held } else { program.held() < held }, "after {calls} calls");
        if !refused {
            break;
        }
    }
    assert!(errors > 40, "{errors}");
}

#[test]
fn a_card_that_others_have_filled_leaves_all_asleep_until_there_is_room() {
    let mut program = busy(3 * MIB);
    let held = program.held();
    program.arena.sleep(&[], &[]).unwrap();
    let other = program.device.0.borrow_mut().device.alloc(4 * (1 << 30) - held / 2).unwrap();
    assert!(matches!(program.arena.wake(&[]), Err(Error::Device(stalloc_device::Error::OutOfMemory { .. }))));
    assert_eq!(program.held(), 4 * (1 << 30) - held / 2, "nothing is kept from the others");
    program.device.0.borrow_mut().device.free(other).unwrap();
    program.arena.wake(&[]).unwrap();
    assert!(program.is_whole(&[]));
}

#[test]
fn a_copy_left_out_or_swapped_is_seen() {
    for broken in [Broken::LeftOut, Broken::Swapped] {
        let mut program = busy(3 * MIB);
        program.arena.sleep(&[], &[]).unwrap();
        program.device.0.borrow_mut().broken = Some(broken);
        program.arena.wake(&[]).unwrap();
        assert!(!program.is_whole(&[]), "{broken:?}");
    }
}

#[derive(Clone, Debug)]
enum Act {
    Malloc(u64, u64),
    Pool(u64),
    Free(usize),
    RecordStream(usize, u64),
    Step,
    EmptyCache,
    /// Refused at the call after so many, if it comes to that; then what to free meanwhile.
    Sleep(Option<u32>, Vec<usize>, bool),
}

fn act() -> impl Strategy<Value = Act> {
    let size = || prop_oneof![4 => (1..40u64).prop_map(|n| n * 512), 2 => (1..9000u64).prop_map(|n| n * 1024), 1 => Just(40 * MIB)];
    let sleep = (proptest::option::of(0..200u32), proptest::collection::vec(any::<usize>(), 0..4), any::<bool>());
    prop_oneof![
        20 => (size(), 0..3u64).prop_map(|(size, stream)| Act::Malloc(size, stream)),
        4 => size().prop_map(Act::Pool),
        18 => any::<usize>().prop_map(Act::Free),
        2 => (any::<usize>(), 0..3u64).prop_map(|(block, stream)| Act::RecordStream(block, stream)),
        3 => Just(Act::Step),
        1 => Just(Act::EmptyCache),
        3 => sleep.prop_map(|(refused, freed, keeps)| Act::Sleep(refused, freed, keeps)),
    ]
}

fn play(acts: &[Act]) -> Program {
    let mut program = Program::new(1 << 30);
    for act in acts {
        match act {
            Act::Malloc(size, stream) => drop(program.malloc(*size, *stream)),
            Act::Pool(size) => drop(program.pool_malloc(*size)),
            Act::Free(block) if !program.live.is_empty() => program.free(block % program.live.len()),
            Act::RecordStream(block, stream) if !program.live.is_empty() => {
                let (address, ..) = program.live[block % program.live.len()];
                program.arena.record_stream(address, *stream).unwrap();
            }
            Act::Step => program.arena.step_begin(),
            Act::EmptyCache => drop(program.arena.give_back(u64::MAX).unwrap()),
            Act::Sleep(refused, freed, keeps) => {
                let keep = if *keeps { program.live.iter().step_by(7).map(|block| block.0).collect() } else { vec![] };
                let keep = program.named(&keep);
                program.device.0.borrow_mut().refuses = *refused;
                let slept = program.arena.sleep(&keep, &[]);
                assert!(slept.is_err() || !keep.is_empty() || program.held() == 0);
                for block in freed {
                    if !program.live.is_empty() {
                        program.free(block % program.live.len());
                    }
                }
                if program.arena.wake(&[]).is_err() {
                    program.arena.wake(&[]).unwrap();
                }
                program.device.0.borrow_mut().refuses = None;
                assert!(program.is_whole(&[]), "after {act:?}");
            }
            _ => {}
        }
    }
    assert!(program.is_whole(&[]));
    program
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::cases(250)))]

    /// 25,000 operations in all, 250,000 nightly.
    #[test]
    fn values_are_what_they_were_over_random_programs(
        acts in proptest::collection::vec(act(), if cfg!(miri) { 1..20 } else { 50..150 }),
        broken in prop_oneof![Just(Broken::LeftOut), Just(Broken::Swapped)],
    ) {
        let mut program = play(&acts);
        // What is broken on purpose is seen.
        program.arena.sleep(&[], &[]).unwrap();
        program.device.0.borrow_mut().broken = Some(broken);
        let woken = program.arena.wake(&[]).unwrap();
        // A copy of what nobody looks at is not missed: memory of a graph, or of a block between the values in it.
        let left_out = program.device.0.borrow().left_out.clone();
        let has_values = |&(address, size, serial): &(Address, u64, u64)| {
            Program::values(size, serial).keys().any(|granule| left_out.contains(&(address + granule * GRANULE)))
        };
        let is_seen = match broken {
            Broken::LeftOut => program.live.iter().any(has_values),
            Broken::Swapped => woken.copies > 1,
        };
        prop_assert!(!is_seen || !program.is_whole(&[]), "{broken:?} of {woken:?}");
    }
}
