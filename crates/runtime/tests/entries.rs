//! Random programs against random, mostly wrong, plans, through the functions that PyTorch calls: no byte of a live
//! block is ever another's.
//!
//! Host memory stands in for the device, so that blocks can be written to: each is filled with its own number and must
//! hold nothing else when it is given back. Threads allocate at once and free what others allocated. A process has one
//! arena for its plan, so each plan gets a process of its own; `STALLOC_RANDOM_PLANS=2000 cargo test -p stalloc-runtime
//! --test entries` tries as many, and `STALLOC_RANDOM_SEED=7 MIRIFLAGS="-Zmiri-disable-isolation
//! -Zmiri-permissive-provenance" cargo +nightly miri test -p stalloc-runtime --test entries` looks closely at one.

use std::env;
use std::ffi::c_void;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use stalloc_plan::{Entry, FOREVER, Plan, Section, SectionKind, Slot};
use stalloc_runtime::pluggable::{self, Refusal, stalloc_free, stalloc_malloc};
use stalloc_runtime::{HOST, block_around, learn, prepare, record_stream, report, step_begin};

const SEED: &str = "STALLOC_RANDOM_SEED";
const ARENA: u64 = 4 << 20;
const MOST_THREADS: u64 = 3;
const ACTS: u64 = if cfg!(miri) { 40 } else { 1500 };

/// SplitMix64: good enough to stray.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Few sizes, so that random programs meet random plans.
    fn size(&mut self) -> u64 {
        match self.below(8) {
            0 => 1 + self.below(200_000),
            kind => [512, 1024, 1000, 65_536, 20_000, 262_144, 512][kind as usize - 1],
        }
    }
}

/// A plan that nothing vouches for. Half of them have offsets that at least do not overlap.
fn plan(random: &mut Random) -> Plan {
    let in_order = random.below(2) == 0;
    let mut end = 0;
    let slots: Vec<Slot> = (0..1 + random.below(60))
        .map(|_| {
            let size = random.size().next_multiple_of(512);
            let lower = random.below(50) as u32;
            let upper = if random.below(9) == 0 { FOREVER } else { lower + random.below(50) as u32 };
            let mut offset = random.below((ARENA - size) / 512) * 512;
            if in_order && end + size <= ARENA {
                offset = end;
                end += size;
            }
            Slot { size, offset, stream: random.below(3) as u32, lower, upper }
        })
        .collect();
    let sections = (0..1 + random.below(4)).map(|_| Section {
        kind: [SectionKind::Prologue, SectionKind::Repeating][random.below(2) as usize],
        name: String::new(),
        runs: 1,
        entries: (0..random.below(80))
            .map(|_| match random.below(6) {
                0 => Entry::WithoutOffset { size: random.size().next_multiple_of(512), stream: random.below(3) as u32 },
                _ => Entry::Slot(random.below(slots.len() as u64) as u32),
            })
            .collect(),
        releases: Vec::new(),
        followers: (0..random.below(3)).map(|_| random.below(5) as u32).collect(),
    });
    let sections = sections.collect();
    Plan { alignment: 512, arena: ARENA, slots, sections, ..Plan::default() }
}

/// A live block and what it is filled with.
struct Filled {
    start: *mut u8,
    size: usize,
    number: u64,
}

// SAFETY: a block belongs to whoever holds this, and to nobody else: that is what is tested.
unsafe impl Send for Filled {}

impl Filled {
    fn new(start: *mut c_void, size: u64) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let block = Filled { start: start.cast(), size: size as usize, number };
        // SAFETY: the block was just handed out with this many bytes.
        let bytes = unsafe { std::slice::from_raw_parts_mut(block.start, block.size) };
        bytes.fill(block.byte());
        block
    }

    /// One of few enough for a byte: two blocks have the same one seldom enough.
    fn byte(&self) -> u8 {
        (self.number % 251) as u8
    }

    fn check(&self) {
        // SAFETY: the block has not been given back.
        let bytes = unsafe { std::slice::from_raw_parts(self.start, self.size) };
        let changed = bytes.iter().step_by(if cfg!(miri) { 61 } else { 1 }).position(|&byte| byte != self.byte());
        assert_eq!(changed, None, "block {} of {} bytes was written to by another", self.number, self.size);
    }
}

/// What a thread does: mostly what the plan would like to see, for a while.
fn program(mut random: Random, plan: &Plan, pool: &Mutex<Vec<Filled>>) {
    let stream = |number: u64| std::ptr::without_provenance_mut::<c_void>(number as usize * 16);
    let malloc = |size: u64, on: u64| {
        let start = stalloc_malloc(size as isize, HOST, stream(on));
        if size == 0 {
            assert!(start.is_null());
            return;
        }
        let block = Filled::new(start, size);
        lock(pool).push(block);
    };
    let free = |block: Filled| {
        block.check();
        stalloc_free(block.start.cast(), block.size as isize, HOST, stream(0));
    };
    let mut acts = 0;
    while acts < ACTS {
        acts += 1;
        match random.below(20) {
            0..=4 => malloc(random.size(), random.below(3)),
            5 | 6 => {
                let section = &plan.sections[random.below(plan.sections.len() as u64) as usize];
                let mut from = random.below(section.entries.len() as u64) as usize;
                if random.below(3) > 0 {
                    step_begin();
                    from = 0;
                }
                for entry in section.entries.iter().skip(from).take(80) {
                    acts += 1;
                    if let Entry::Slot(slot) = entry {
                        let slot = &plan.slots[*slot as usize];
                        malloc(slot.size - random.below(512).min(slot.size - 1), u64::from(slot.stream));
                    }
                }
                // As steps end.
                if random.below(2) == 0 {
                    let all = std::mem::take(&mut *lock(pool));
                    all.into_iter().for_each(free);
                }
            }
            7 if random.below(4) == 0 => step_begin(),
            8 if random.below(20) == 0 => drop(stalloc_runtime::trim(HOST)),
            9 => malloc(0, 0),
            10 => stalloc_free(stream(random.next() >> 20), 8, HOST, stream(0)),
            11 => {
                if let Some(block) = lock(pool).last() {
                    let start = block.start.expose_provenance() as u64;
                    record_stream(start, random.below(3) * 16);
                    let inside = start + block.size as u64 / 2;
                    let around = block_around(inside);
                    assert!(around.is_none_or(|found| found.address <= start && found.address + found.size >= inside));
                }
            }
            _ => {
                let block = {
                    let mut pool = lock(pool);
                    let count = pool.len() as u64;
                    (count > 0).then(|| pool.swap_remove(random.below(count) as usize))
                };
                block.into_iter().for_each(free);
            }
        }
    }
}

fn lock(pool: &Mutex<Vec<Filled>>) -> std::sync::MutexGuard<'_, Vec<Filled>> {
    pool.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// One plan and the programs that stray from it, in a process of their own.
fn run(seed: u64) {
    let mut random = Random(seed);
    let plan = plan(&mut random);
    // Half of the programs are learned from while they run: plans are proposed and dropped at any time.
    if random.below(2) == 0 {
        learn();
    }
    if random.below(8) > 0 {
        assert!(prepare(HOST, plan.clone()));
    }
    let pool = Mutex::new(Vec::new());
    // Streams are known by the order in which they come.
    for number in 0..3 {
        let on = std::ptr::without_provenance_mut(number * 16);
        lock(&pool).push(Filled::new(stalloc_malloc(512, HOST, on), 512));
    }
    std::thread::scope(|scope| {
        for thread in 0..1 + seed % MOST_THREADS {
            let (plan, pool) = (&plan, &pool);
            scope.spawn(move || program(Random(seed.wrapping_mul(31).wrapping_add(thread)), plan, pool));
        }
    });
    for size in [u64::MAX, 1 << 50] {
        let refused = pluggable::malloc(HOST, size, 0).expect_err("nobody has as much");
        let is_told = matches!(&refused, Refusal::OutOfMemory(text) if text.starts_with("CUDA out of memory"));
        assert!(is_told, "{refused:?}");
    }
    assert!(matches!(pluggable::malloc(1000, 8, 0), Err(Refusal::Other(_))), "there is no such device");
    let live = lock(&pool);
    let used: u64 = live.iter().map(|block| (block.size as u64).next_multiple_of(512)).sum();
    let held = report(HOST).map(|report| (report.peak_allocated, report.peak_reserved));
    assert!(held.is_none_or(|(allocated, reserved)| used <= allocated && allocated <= reserved), "{used} of {held:?}");
    drop(live);
    for block in pool.into_inner().unwrap_or_default() {
        block.check();
        stalloc_free(block.start.cast(), block.size as isize, HOST, std::ptr::null_mut());
    }
    let arena = report(HOST).map(|report| report.arena).unwrap_or_default();
    println!("requests {} planned {} open {} plans {}", arena.requests, arena.planned, arena.best_fit, arena.plans);
}

#[test]
fn random_programs_against_random_plans_never_share_a_byte() {
    if let Some(seed) = env::var(SEED).ok().and_then(|seed| seed.parse().ok()) {
        return run(seed);
    }
    let plans: u64 = env::var("STALLOC_RANDOM_PLANS").ok().and_then(|count| count.parse().ok()).unwrap_or(24);
    let program = env::current_exe().expect("a test has a file");
    let mut totals = [0u64; 3];
    for seed in 0..plans {
        let child = Command::new(&program)
            .args(["random_programs_against_random_plans", "--nocapture"])
            .env(SEED, seed.to_string())
            .output()
            .expect("a test can be run again");
        let said = String::from_utf8_lossy(&child.stdout);
        let error = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success(), "plan {seed}: run it again with {SEED}={seed}\n{said}{error}");
        let line = said.lines().find_map(|line| Some(line.split_once("requests ")?.1)).unwrap_or_default();
        for (total, number) in totals.iter_mut().zip(line.split(' ').filter_map(|word| word.parse::<u64>().ok())) {
            *total += number;
        }
    }
    let [requests, planned, open] = totals;
    println!("{plans} plans, {requests} requests: {planned} from a plan, {open} by best fit");
    assert!(planned > requests / 20 && open > requests / 50, "programs and plans meet: {totals:?}");
}
