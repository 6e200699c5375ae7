//! What learning costs a process: on a step's time, at the step that adopts a plan, in the background, and in memory.
//!
//! ```text
//! cargo run --release -p stalloc-runtime --example learning            # steps of 50,000 requests, at a script's pace
//! cargo run --release -p stalloc-runtime --example learning -- long    # 100,000 short steps whose kind changes
//! ```
//!
//! The arena is the one that serves training scripts, over addresses of the host that nobody touches; the thread that learns
//! is the real one. Linux only: times of threads are read from /proc.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};

use stalloc_plan::Plan;
use stalloc_runtime::{HOST, free, keep_learned, learn, prepare, report, serve, step_begin};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Requests of a long step.
const REQUESTS: usize = 50_000;
/// Time that a training script takes for a request, at least: what PyTorch's own work around it takes.
const PACE: Duration = Duration::from_micros(10);
/// Long steps of a run.
const STEPS: usize = 24;
/// Short steps of a run.
const SHORT_STEPS: usize = 100_000;
/// Requests of a short step.
const SHORT: usize = 400;
/// Short steps until the program asks for other sizes.
const PHASE: usize = 250;
/// The thread's name, as the system cuts it.
const LEARNER: &str = "stalloc-learner";

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// A step as a training script makes it: activations of a forward pass that the backward pass frees in turn, temporaries
/// among them. What each request asks for; `None` frees the latest activation.
fn step(requests: usize, seed: u64) -> Vec<Option<(u64, bool)>> {
    let mut random = Random(seed);
    let mut acts = Vec::with_capacity(2 * requests);
    let half = requests / 2;
    let mut kept = 0;
    for at in 0..requests {
        let is_kept = at < half && random.below(3) == 0;
        let size = if is_kept { 65_536 << random.below(4) } else { 512 * (1 + random.below(2000)) };
        kept += usize::from(is_kept);
        acts.push(Some((size + 512 * random.below(64), is_kept)));
        // The backward pass frees at an even pace what the forward pass kept.
        if at >= half && kept > 0 && random.below((requests - at) as u64) < kept as u64 {
            kept -= 1;
            acts.push(None);
        }
    }
    acts.extend((0..kept).map(|_| None));
    acts
}

/// Runs a step; the time that its beginning took, and all of it.
fn run(acts: &[Option<(u64, bool)>], kept: &mut Vec<u64>) -> Result<(Duration, Duration)> {
    let begun = Instant::now();
    step_begin();
    let beginning = begun.elapsed();
    let mut temporary = None;
    for act in acts {
        match act {
            Some((size, is_kept)) => {
                let address = serve(HOST, *size, 0).ok_or("not served")?.address;
                let gone = if *is_kept {
                    kept.push(address);
                    None
                } else {
                    temporary.replace(address)
                };
                gone.map(free);
            }
            None => {
                kept.pop().map(free);
            }
        }
    }
    temporary.map(free);
    Ok((beginning, begun.elapsed()))
}

/// CPU time of the thread that learns until now.
fn learning() -> Duration {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let learners = tasks
        .filter(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|name| LEARNER.starts_with(name.trim())));
    let spent = learners.filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(spent.sum())
}

/// Memory of this process, MiB.
fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096 / (1 << 20)
}

fn milliseconds(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let at = |share: usize| times.get((times.len() * share / 100).min(times.len().saturating_sub(1)));
    let show = |time: Option<&Duration>| time.map_or("-".into(), |time| format!("{:.2}", time.as_secs_f64() * 1e3));
    format!("{} ({} to {})", show(at(50)), show(at(0)), show(at(99)))
}

/// Long steps in one mode, in this process.
fn long_steps(mode: &str, folder: &Path) -> Result<()> {
    let plan = match mode {
        "planned" => stalloc_plan::read(&folder.join(format!("rank0_dev{HOST}.plan")))?,
        _ => Plan::default(),
    };
    let before = resident();
    if mode == "auto" {
        learn();
    }
    prepare(HOST, plan);
    let (acts, mut kept) = (step(REQUESTS, 1), Vec::new());
    let (mut open, mut adopting, mut planned, mut most) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let mut adoptions = Vec::new();
    let begun = Instant::now();
    for number in 0..STEPS {
        let was = report(HOST).map_or(0, |report| report.arena.plans);
        let from = report(HOST).map_or(0, |report| report.arena.planned);
        let (beginning, took) = run(&acts, &mut kept)?;
        let now = report(HOST).ok_or("no report")?.arena;
        if number > 0 {
            // The first step brings the arena's own memory in.
            let of = if now.plans > was {
                adoptions.push(beginning);
                &mut adopting
            } else if now.planned > from {
                &mut planned
            } else {
                &mut open
            };
            of.push(took);
        }
        most = most.max(resident());
        std::thread::sleep((PACE * REQUESTS as u32).saturating_sub(took));
    }
    let share = 100.0 * learning().as_secs_f64() / begun.elapsed().as_secs_f64();
    println!(
        "| {mode} | {} | {} | {} | {} | {share:.1} % | {} |",
        milliseconds(&mut open),
        milliseconds(&mut adopting),
        milliseconds(&mut adoptions),
        milliseconds(&mut planned),
        most - before
    );
    if mode == "auto" {
        keep_learned(folder, 0);
    }
    Ok(())
}

/// Many short steps whose kind changes.
fn short_steps() -> Result<()> {
    learn();
    prepare(HOST, Plan::default());
    println!("| steps | resident, MiB | plans so far | at planned offsets |\n|---:|---:|---:|---:|");
    let (mut kept, mut acts) = (Vec::new(), Vec::new());
    for number in 0..SHORT_STEPS {
        if number.is_multiple_of(PHASE) {
            let phase = (number / PHASE) as u64;
            // Every third phase comes again 21 phases later.
            acts = step(SHORT + (phase % 7) as usize * 50, if phase.is_multiple_of(3) { 0 } else { phase });
        }
        run(&acts, &mut kept)?;
        // As fast as a fast script.
        std::thread::sleep(Duration::from_micros(200));
        let done = number + 1;
        if done == 1000 || done.is_multiple_of(SHORT_STEPS / 10) {
            let now = report(HOST).ok_or("no report")?.arena;
            let share = 100.0 * now.planned as f64 / now.requests as f64;
            println!("| {done} | {} | {} | {share:.0} % |", resident(), now.plans);
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["long"] => short_steps(),
        [mode, folder] => long_steps(mode, Path::new(folder)),
        _ => {
            let folder = env::temp_dir().join(format!("stalloc-learning-{}", std::process::id()));
            fs::create_dir_all(&folder)?;
            println!(
                "Steps of {REQUESTS} requests, {} ms each; busy time of a step, ms: median (least to most)\n",
                (PACE * REQUESTS as u32).as_millis()
            );
            println!(
                "| | no plan | a plan is adopted | its beginning | planned | learning, of a core | memory, MiB |\n\
                 |---|---|---|---|---|---:|---:|"
            );
            for mode in ["auto", "open", "planned"] {
                let done = Command::new(env::current_exe()?).arg(mode).arg(&folder).status()?;
                if !done.success() {
                    return Err(format!("{mode} failed").into());
                }
            }
            Ok(fs::remove_dir_all(folder)?)
        }
    }
}
