//! The answer in words: one sentence that says what is wasted, one that says what to do.

use crate::figures::{AllocatorFigures, Fit};

/// A number of bytes for people, in binary units as PyTorch's messages are.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    // What would be written as 1024 is written as 1 of the next unit.
    while scaled >= 1023.5 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let digits = match unit {
        0 => 0,
        3.. if scaled < 10.0 => 2,
        3.. => 1,
        _ if scaled < 100.0 => 1,
        _ => 0,
    };
    format!("{scaled:.digits$} {}", UNITS[unit])
}

/// A share as a percentage; never rounds up to 100 %, nor down to nothing.
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    if value > 0.0 && value < 0.1 {
        return "under 0.1 %".into();
    }
    let digits = if (99.95..100.0).contains(&value) { 2 } else { 1 };
    let scale = 10f64.powi(digits);
    let text = format!("{:.*}", digits as usize, (value * scale).floor() / scale);
    let short = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{short} %")
}

/// What the answer is made from.
pub struct Answer<'a> {
    /// What the rest is measured against: what happened, else PyTorch's allocator.
    pub before: Option<&'a AllocatorFigures>,
    /// The plan.
    pub plan: Option<&'a AllocatorFigures>,
    /// The best of the allocators that do not plan.
    pub rival: Option<&'a AllocatorFigures>,
    /// Whether there is no history.
    pub state_only: bool,
    /// Most live bytes.
    pub peak_allocated: u64,
}

/// The answer in a sentence.
pub fn headline(answer: &Answer<'_>) -> String {
    let Some(before) = answer.before else {
        return format!("The program needs {} at its peak.", bytes(answer.peak_allocated));
    };
    let who = if before.allocator == "actual" { "The job".to_owned() } else { before.label.to_owned() };
    let (verb, moment) = if answer.state_only { ("holds", "") } else { ("held", " at its peak") };
    let held = if before.wasted == 0 || before.efficiency >= 0.995 {
        format!("{who} {verb} {} and wastes next to nothing", bytes(before.peak_reserved))
    } else {
        format!(
            "{who} {verb} {} to use {}{moment}: {} ({}) wasted",
            bytes(before.peak_reserved),
            bytes(answer.peak_allocated),
            bytes(before.wasted),
            percent(1.0 - before.efficiency),
        )
    };
    match answer.plan {
        Some(plan) if gain(before, plan) > 0.01 => {
            format!("{held}. With a plan it needs {}.", bytes(plan.peak_reserved))
        }
        _ => format!("{held}."),
    }
}

/// The share of what is held that a plan frees.
fn gain(before: &AllocatorFigures, plan: &AllocatorFigures) -> f64 {
    let saved = before.peak_reserved.saturating_sub(plan.peak_reserved);
    saved as f64 / before.peak_reserved.max(1) as f64
}

/// What to do, in a sentence or two.
pub fn advice(answer: &Answer<'_>) -> String {
    if answer.state_only {
        return "This file is the state of one moment. To see what a plan would save, record a history: \
                torch.cuda.memory._record_memory_history() before training, _dump_snapshot() after a few steps."
            .into();
    }
    let (Some(before), Some(plan)) = (answer.before, answer.plan) else {
        return "No plan was made for this input.".into();
    };
    let saved = before.peak_reserved.saturating_sub(plan.peak_reserved);
    if gain(before, plan) < 0.02 {
        return "There is little to gain from a plan: nearly all that is held is used. To need less, ask for less \
                (recomputation, smaller micro-batches, sharding)."
            .into();
    }
    let mut text = format!("Run it with `stalloc run -- COMMAND` and it frees {}", bytes(saved));
    if let Some(card) = ["40", "80", "141"]
        .iter()
        .find(|card| plan.fits.get(**card) == Some(&Fit::Yes) && before.fits.get(**card) != Some(&Fit::Yes))
    {
        text.push_str(&format!("; it then fits a {card} GB card"));
    }
    match answer.rival {
        Some(rival) if rival.peak_reserved < before.peak_reserved && rival.allocator != before.allocator => text
            .push_str(&format!(". {} would free {}.", rival.label, bytes(before.peak_reserved - rival.peak_reserved))),
        _ => text.push_str(". None of the other allocators would free anything."),
    }
    text
}
