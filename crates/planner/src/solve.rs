//! The whole: prepare, solve each part, put the parts together.

use crate::finder::Layout;
use crate::first_fit::FirstFit;
use crate::problem::{Item, Part, Problem, prepare};
use crate::skyline::best_fit;
use crate::{Error, Instance, Options, Solution};

/// Finds a place for every buffer.
///
/// # Errors
/// When the instance makes no sense or no solution fits in 64 bits.
pub fn solve(instance: &Instance, _options: &Options) -> Result<Solution, Error> {
    let problem = prepare(instance)?;
    let mut offsets: Vec<u64> = instance.buffers.iter().map(|b| b.fixed.unwrap_or(0)).collect();
    for &(id, offset) in &problem.decided {
        offsets[id as usize] = scaled(&problem, offset)?;
    }
    let target = problem.parts.iter().map(|p| p.bound).max().unwrap_or(0);
    for part in &problem.parts {
        let places = solve_part(part, target).ok_or(Error::TooLarge)?;
        for (item, place) in part.items.iter().zip(places) {
            offsets[item.id as usize] = scaled(&problem, place)?;
        }
    }
    let mut peak = 0;
    for (b, &offset) in instance.buffers.iter().zip(&offsets) {
        if b.counts() {
            peak = peak.max(offset.checked_add(b.size).ok_or(Error::TooLarge)?);
        }
    }
    let optimal = peak == problem.lower_bound;
    Ok(Solution { offsets, peak, lower_bound: problem.lower_bound, optimal })
}

fn scaled(problem: &Problem, offset: u64) -> Result<u64, Error> {
    offset.checked_mul(problem.unit).ok_or(Error::TooLarge)
}

fn top(part: &Part, places: &[u64]) -> u64 {
    part.items.iter().zip(places).map(|(i, p)| p.saturating_add(i.size)).max().unwrap_or(0)
}

/// What an item is ordered by, the lowest first.
type Rule = fn(&Item) -> (u64, u64);

/// The rules by which items are ordered.
fn orders(part: &Part) -> impl Iterator<Item = Vec<u32>> {
    let rules: [Rule; 4] = [
        |i| (u64::MAX - u64::from(i.length()), u64::MAX - i.size),
        |i| (u64::MAX - i.size, u64::MAX - u64::from(i.length())),
        |i| (u64::MAX - i.size.saturating_mul(u64::from(i.length())), 0),
        |i| (u64::from(i.lower), u64::MAX - i.size),
    ];
    rules.into_iter().map(|rule| {
        let mut order: Vec<u32> = (0..part.items.len() as u32).collect();
        order.sort_by_cached_key(|&i| rule(&part.items[i as usize]));
        order
    })
}

fn solve_part(part: &Part, target: u64) -> Option<Vec<u64>> {
    let layout = Layout::new(&part.items);
    let mut best: Option<(u64, Vec<u64>)> = None;
    for order in orders(part) {
        let limit = best.as_ref().map_or(u64::MAX, |b| b.0);
        if limit <= target {
            break;
        }
        if part.fixed.is_empty()
            && let Some(places) = best_fit(part, &layout, &order, limit)
        {
            best = Some((top(part, &places), places));
        }
    }
    let mut fit = FirstFit::new(part);
    for order in orders(part) {
        let limit = best.as_ref().map_or(u64::MAX, |b| b.0);
        if limit <= target {
            break;
        }
        let work = if best.is_some() { 20_000_000 } else { u64::MAX };
        if let Some(places) = fit.run(&order, limit, work) {
            best = Some((top(part, &places), places));
        }
    }
    best.map(|b| b.1)
}
