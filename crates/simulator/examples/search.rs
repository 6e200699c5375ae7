//! Looks for programs on which ours needs more than the best of PyTorch's allocator and expandable segments, or remaps without end:
//!
//! ```text
//! cargo run --release -p stalloc-simulator --example search -- [--goal capacity|reserved|remaps] [--tries N] [--seed N] [--out DIR]
//! cargo run --release -p stalloc-simulator --example search -- FILE...       the figures of programs that were found
//! ```
//!
//! Hill climbing from random programs: a change is kept if it makes things worse for us; after some in vain, another program. Each
//! climb's worst is written to DIR. *capacity*: the smallest device, ours over the best rival's. *reserved*: what is held with room,
//! ours over the best rival's or 1.03 of the peak if that is more. *remaps*: a step, at 1.05 times the peak.

#[path = "../tests/found/mod.rs"]
mod found;

use std::error::Error;
use std::path::PathBuf;

use found::{Draw, Op, Order, Program};
use stalloc_simulator::{Kind, Options, replay};
use stalloc_trace::Trace;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PAGE: u64 = 2 << 20;
/// Peaks that say something: a page is less than half a per cent of the least.
const PEAKS: std::ops::Range<u64> = 512 << 20..16 << 30;
/// Requests of the largest program.
const REQUESTS: u64 = 2500;
/// Changes in vain before another program is tried.
const PATIENCE: u32 = 150;
const OURS: [Kind; 2] = [Kind::StallocOpen, Kind::StallocAuto];
const RIVALS: [Kind; 2] = [Kind::Pytorch, Kind::PytorchExpandable];
/// Room, for what is held where there is some.
const ROOM: u64 = 80 << 30;

#[derive(Clone, Copy, PartialEq)]
enum Goal {
    Capacity,
    Reserved,
    Remaps,
}

/// The smallest device that a program gets through on, to 1/512 of its peak; none below `least` is tried.
fn smallest(trace: &Trace, kind: Kind, peak: u64) -> Result<u64> {
    let unit = (peak / 512).next_multiple_of(PAGE);
    let from = peak.next_multiple_of(PAGE);
    let fits = |capacity: u64| -> Result<bool> {
        let options = Options { capacity: Some(capacity), ..Options::default() };
        Ok(replay(trace, kind, &options, &mut |_, _| {})?.oom.is_none())
    };
    let (mut low, mut high) = (0, 4);
    if fits(from)? {
        return Ok(from);
    }
    while !fits(from + high * unit)? {
        (low, high) = (high, high * 4);
        if high > 1 << 14 {
            return Ok(from + high * unit);
        }
    }
    while high - low > 1 {
        let middle = low.midpoint(high);
        if fits(from + middle * unit)? { high = middle } else { low = middle }
    }
    Ok(from + high * unit)
}

/// Remaps a step, the first two steps aside, at 1.05 times the peak.
fn remaps(trace: &Trace, kind: Kind, peak: u64) -> Result<f64> {
    let options = Options { capacity: Some(peak + peak / 20), ..Options::default() };
    let done = replay(trace, kind, &options, &mut |_, _| {})?;
    let late = done.remaps_by_step.get(2..).unwrap_or_default();
    Ok(late.iter().sum::<u64>() as f64 / late.len().max(1) as f64)
}

fn reserved(trace: &Trace, kind: Kind) -> Result<u64> {
    let options = Options { capacity: Some(ROOM), ..Options::default() };
    Ok(replay(trace, kind, &options, &mut |_, _| {})?.peak_reserved)
}

/// How bad a program is for ours, of the kinds asked for: larger is worse.
fn badness(program: &Program, goal: Goal, ours: &[Kind]) -> Result<Option<f64>> {
    if program.requests() > REQUESTS || program.requests() < 10 {
        return Ok(None);
    }
    let trace = program.trace();
    let peak = trace.peak_allocated();
    if !PEAKS.contains(&peak) {
        return Ok(None);
    }
    let all = |kinds: &[Kind], of: &dyn Fn(Kind) -> Result<f64>| {
        kinds.iter().map(|&kind| of(kind)).collect::<Result<Vec<_>>>()
    };
    let most = |values: Vec<f64>| values.into_iter().fold(0.0, f64::max);
    let least = |values: Vec<f64>| values.into_iter().fold(f64::INFINITY, f64::min);
    Ok(Some(match goal {
        Goal::Capacity => {
            let of = |kind| Ok(smallest(&trace, kind, peak)? as f64);
            most(all(ours, &of)?) / least(all(&RIVALS, &of)?)
        }
        Goal::Reserved => {
            let of = |kind| Ok(reserved(&trace, kind)? as f64);
            most(all(ours, &of)?) / least(all(&RIVALS, &of)?).max(1.03 * peak as f64)
        }
        Goal::Remaps => most(all(ours, &|kind| remaps(&trace, kind, peak))?),
    }))
}

/// A size, as likely to be small as large.
fn size(draw: &mut Draw) -> u64 {
    let size = 512u64 << draw.below(19);
    (size + size / 8 * draw.below(8)).next_multiple_of(512)
}

fn op(draw: &mut Draw) -> Op {
    let most = 1 << draw.below(7);
    let many = draw.below(most);
    let long = if draw.below(4) == 0 { 20 } else { 6 };
    Op {
        every: [1, 1, 1, 1, 0, 2, 3, 4][draw.below(8) as usize],
        blocks: 1 + many,
        size: size(draw),
        spread: [0, 0, 0, 2, 8, 16, 32][draw.below(7) as usize],
        by_step: draw.below(2) == 0,
        life: if draw.below(8) == 0 { Op::FOREVER } else { draw.below(long) },
        after: if draw.below(3) == 0 { size(draw) } else { 0 },
        after_life: if draw.below(10) == 0 { Op::FOREVER } else { 1 + draw.below(long) },
        stream: if draw.below(6) == 0 { 1 } else { 0 },
        order: [Order::FirstFirst, Order::LastFirst, Order::EveryOther][draw.below(3) as usize],
    }
}

fn random(draw: &mut Draw) -> Program {
    let ops = 2 + draw.below(6);
    Program { steps: 4 + draw.below(10), ops: (0..ops).map(|_| op(draw)).collect() }
}

/// A program with one thing changed.
fn changed(program: &Program, draw: &mut Draw) -> Program {
    let mut next = program.clone();
    let place = draw.below(next.ops.len() as u64) as usize;
    match draw.below(14) {
        0 => next.steps = 4 + draw.below(10),
        1 if next.ops.len() < 12 => next.ops.insert(place, op(draw)),
        2 if next.ops.len() > 1 => drop(next.ops.remove(place)),
        3 => {
            let other = draw.below(next.ops.len() as u64) as usize;
            next.ops.swap(place, other);
        }
        4 if next.ops.len() < 12 => next.ops.insert(place, next.ops[place].clone()),
        field => {
            let (old, new) = (&mut next.ops[place], op(draw));
            match field {
                5 => old.every = new.every,
                6 => old.blocks = new.blocks,
                7 => old.size = new.size,
                8 => old.size = (old.size + old.size / 16 * draw.below(8)).next_multiple_of(512).min(256 << 20),
                9 => (old.spread, old.by_step) = (new.spread, new.by_step),
                10 => old.life = new.life,
                11 => (old.after, old.after_life) = (new.after, new.after_life),
                12 => (old.stream, old.order) = (new.stream, new.order),
                _ => old.blocks = (old.blocks + draw.below(old.blocks + 1)).clamp(1, 300),
            }
        }
    }
    next
}

fn show(name: &str, program: &Program) -> Result<()> {
    let trace = program.trace();
    let peak = trace.peak_allocated();
    let mut cells = vec![name.to_owned(), program.requests().to_string(), format!("{:.2}", peak as f64 / 1e9)];
    for kind in RIVALS.into_iter().chain(OURS) {
        let parts = [smallest(&trace, kind, peak)?, reserved(&trace, kind)?].map(|bytes| bytes as f64 / peak as f64);
        cells.push(format!("{:.4} · {:.3} · {:.1}", parts[0], parts[1], remaps(&trace, kind, peak)?));
    }
    println!("| {} |", cells.join(" | "));
    Ok(())
}

fn main() -> Result<()> {
    let (mut goal, mut tries, mut seed, mut out, mut files, mut ours) =
        (Goal::Capacity, 1000u64, 1u64, None, Vec::new(), OURS.to_vec());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--goal" => {
                goal = match value()?.as_str() {
                    "capacity" => Goal::Capacity,
                    "reserved" => Goal::Reserved,
                    "remaps" => Goal::Remaps,
                    other => return Err(format!("there is no goal `{other}`").into()),
                }
            }
            "--tries" => tries = value()?.parse()?,
            "--seed" => seed = value()?.parse()?,
            "--out" => out = Some(PathBuf::from(value()?)),
            "--allocator" => ours = vec![value()?.parse()?],
            file => files.push(PathBuf::from(file)),
        }
    }
    println!(
        "| program | requests | peak, GB | PyTorch: capacity · reserved · remaps | expandable | open | auto |\n|---|---|---|---|---|---|---|"
    );
    for file in &files {
        show(&file.file_stem().unwrap_or_default().to_string_lossy(), &std::fs::read_to_string(file)?.parse()?)?;
    }
    if !files.is_empty() {
        return Ok(());
    }
    if let Some(out) = &out {
        std::fs::create_dir_all(out)?;
    }
    let mut draw = Draw(seed);
    let (mut tried, mut climbs, mut worst, mut over) = (0, 0, 0.0, 0);
    while tried < tries {
        let mut best = random(&mut draw);
        let Some(mut bad) = badness(&best, goal, &ours)? else { continue };
        let mut in_vain = 0;
        tried += 1;
        while tried < tries && in_vain < PATIENCE {
            let next = changed(&best, &mut draw);
            let Some(found) = badness(&next, goal, &ours)? else { continue };
            tried += 1;
            over += u64::from(found > 1.01);
            if found > bad {
                (best, bad, in_vain) = (next, found, 0);
            } else {
                in_vain += 1;
            }
        }
        climbs += 1;
        if bad > worst {
            worst = bad;
            eprintln!("after {tried} tries: {bad:.4}");
            show(&format!("{bad:.4}"), &best)?;
        }
        if let Some(out) = &out {
            std::fs::write(out.join(format!("{bad:.4}-{seed}-{climbs}.txt")), best.to_string())?;
        }
    }
    println!("{tried} tries, {climbs} climbs, worst {worst:.4}; {over} tries above 1.01");
    Ok(())
}
