//! Random requests of many threads on many streams, with steps, trims and statistics between them, while the learner reads, plans and
//! keeps: a map apart from the arena knows which addresses are in use. `scripts/sanitizers` runs it under the sanitizers.
//! `STALLOC_TURNS` has each thread take so many turns.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stalloc_plan::Plan;
use stalloc_runtime::{
    HOST, block_around, blocks, counters, free, keep_in, keep_learned, learn, mapped, prepare, record_stream, report,
    serve, step_begin, trim,
};

const THREADS: u64 = 4;

/// A sequence of numbers by chance.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// What is in use, by address. It is never locked while the runtime is called: a block is in it for less time than it is in use.
#[derive(Default)]
struct InUse(Mutex<BTreeMap<u64, u64>>);

impl InUse {
    fn take(&self, address: u64, bytes: u64) {
        let mut all = self.0.lock().unwrap();
        let below = all.range(..address + bytes).next_back();
        assert!(below.is_none_or(|(start, bytes)| start + bytes <= address), "a block is handed out twice");
        all.insert(address, bytes);
    }

    fn give(&self, address: u64) {
        assert!(self.0.lock().unwrap().remove(&address).is_some());
    }
}

fn requests(thread: u64, turns: u64, in_use: &InUse, done: &AtomicU64) {
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15 ^ (thread + 1));
    let mut live = Vec::new();
    for _ in 0..turns {
        match chance.below(100) {
            0 => assert!(trim(HOST) < 1 << 40),
            1 => assert!(report(HOST).is_none_or(|report| report.arena.allocated <= report.arena.reserved)),
            2 => drop((blocks(HOST), mapped(HOST), counters(HOST, true, false))),
            3..50 if !live.is_empty() => {
                let address = live.swap_remove(chance.below(live.len() as u64) as usize);
                in_use.give(address);
                assert!(free(address).is_some());
            }
            50..55 if !live.is_empty() => {
                let address = live[chance.below(live.len() as u64) as usize];
                record_stream(address, chance.below(6));
                assert_eq!(block_around(address).map(|block| block.address), Some(address));
            }
            _ if live.len() < 200 => {
                let largest = [1 << 9, 1 << 14, 1 << 20, 6 << 20][chance.below(4) as usize];
                if let Some(handed) = serve(HOST, 1 + chance.below(largest), chance.below(3)) {
                    in_use.take(handed.address, handed.bytes);
                    live.push(handed.address);
                }
            }
            _ => {}
        }
    }
    for address in live {
        in_use.give(address);
        assert!(free(address).is_some());
    }
    done.fetch_add(1, Ordering::Release);
}

/// Steps that repeat exactly, of the main thread; until a plan of them is kept.
fn steps(folder: &Path) -> u64 {
    let plan = folder.join("rank3_dev-1.plan");
    let began = Instant::now();
    let mut steps = 0;
    while !plan.exists() && began.elapsed() < Duration::from_secs(120) {
        step_begin();
        let held: Vec<u64> = (1..40).filter_map(|n| Some(serve(HOST, n * 5_000, 0)?.address)).collect();
        held.into_iter().for_each(|address| assert!(free(address).is_some()));
        steps += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    steps
}

/// The scheduling policy and the nice value of this process's thread of a name.
fn scheduling(name: &str) -> Option<(i32, i32)> {
    std::fs::read_dir("/proc/self/task").ok()?.flatten().find_map(|task| {
        let said = std::fs::read_to_string(task.path().join("stat")).ok()?;
        let (thread, figures) = said.split_once('(')?.1.rsplit_once(')')?;
        let figure = |n| figures.split_whitespace().nth(n)?.parse().ok();
        (thread == name).then_some((figure(38)?, figure(16)?))
    })
}

/// One test: the runtime is the process's.
#[test]
fn threads_never_share_memory_while_a_plan_is_learned_and_what_was_learned_is_kept_before_the_end() {
    let folder = tempfile::tempdir().unwrap();
    keep_in(folder.path(), 3);
    learn();
    assert!(prepare(HOST, Plan::default()));
    assert!(steps(folder.path()) > 0);
    let (_, nice) = scheduling("threads_never_s").expect("this thread");
    assert_eq!(
        scheduling("stalloc-learner"),
        Some((libc::SCHED_BATCH, nice)),
        "a full share, and no thread is interrupted"
    );
    let kept =
        stalloc_plan::read(&folder.path().join("rank3_dev-1.plan")).expect("a whole plan, though nothing has ended");
    assert!(!kept.slots.is_empty());
    let turns = std::env::var("STALLOC_TURNS").ok().and_then(|turns| turns.parse().ok()).unwrap_or(5000);
    let (in_use, done) = (InUse::default(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (in_use, done) = (&in_use, &done);
            scope.spawn(move || requests(thread, turns, in_use, done));
        }
        while done.load(Ordering::Acquire) < THREADS {
            step_begin();
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    keep_learned(folder.path(), 3);
}
