//! The cheapest set of levers that fits.
//!
//! Levers do not add up: with the activations gone the optimizer's step is the peak. So sets are tried: all that cost nothing; with them
//! all that save, less one after the other, the dearest first; sets of up to three, the cheapest first; then one more at a time, those too
//! that change the numbers or take more GPUs; and at the end, what is not needed after all is taken out again.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::fit::Error;
use crate::fit::notes::FoundLever;
use crate::levers::{Answer, Bench, LeverFigures, Row, SHARDED, SPILL, WITHOUT_OWN, aim_lower, value_with};

/// Sets that are tried at most, of those with the script's numbers on its GPU and of the others each.
const MOST_TRIALS: usize = 24;

/// The part of a step that is noise: a counter, a scalar, a page that is taken at another moment.
const NOISE: f64 = 0.002;

/// A lever that the set fits without is kept where it saves this part of a step. Made up: less is not worth other sums.
const WORTH: f64 = 0.02;

/// This part of a peak is too little to choose by: counters of `fused` take 512 bytes for each parameter. Made up.
const LITTLE: u64 = 1024;

/// A set with a plan that needs more than the goal by less than this part of it is planned again, with less allowed. Made up.
const NEAR: u64 = 32;

/// A set of levers.
#[derive(Clone, Debug)]
pub struct Combination {
    /// Which; none: the script fits as it is.
    pub levers: Vec<FoundLever>,
    /// What it needs.
    pub figures: LeverFigures,
}

/// What a lever costs, the dearest first: whether the numbers change, GPUs beyond one, seconds of a step.
type Cost = (bool, u32, f64);

/// A lever that was tried alone.
struct Alone<'a> {
    cost: Cost,
    lever: &'a FoundLever,
    figures: &'a LeverFigures,
}

impl Alone<'_> {
    /// Whether it keeps the numbers and the GPU.
    fn is_same(&self) -> bool {
        (self.cost.0, self.cost.1) == (false, 0)
    }

    fn is_free(&self) -> bool {
        self.is_same() && self.cost.2 <= 0.0
    }
}

fn cost(answer: &Answer, row: &Row) -> Option<Cost> {
    let (lever, figures) = (row.lever.as_ref()?, row.outcome.as_ref().ok()?);
    let gpus = lever.name.strip_prefix(SHARDED).and_then(|ranks| ranks.parse::<u32>().ok()).unwrap_or(1);
    Some((lever.numerics == "change", gpus.saturating_sub(1), seconds(answer, figures)))
}

/// Seconds that each step takes longer, or less; 0 where that is noise.
fn seconds(answer: &Answer, figures: &LeverFigures) -> f64 {
    answer.extra_seconds(figures).filter(|more| more.abs() > step(answer) * NOISE).unwrap_or(0.0)
}

/// Seconds of a step as it is.
fn step(answer: &Answer) -> f64 {
    answer.base.outcome.as_ref().ok().and_then(|base| base.step_us).unwrap_or(0) as f64 / 1e6
}

fn order(one: &Cost, other: &Cost) -> Ordering {
    one.partial_cmp(other).unwrap_or(Ordering::Equal)
}

/// Looks for it; none if nothing can be said.
pub fn combine(bench: &mut Bench<'_>, answer: &Answer) -> Result<Option<Combination>, Error> {
    let Ok(base) = &answer.base.outcome else { return Ok(None) };
    if base.fits {
        return Ok(Some(Combination { levers: Vec::new(), figures: base.clone() }));
    }
    let mut ranked: Vec<Alone<'_>> = answer
        .rows
        .iter()
        .filter_map(|row| {
            Some(Alone { cost: cost(answer, row)?, lever: row.lever.as_ref()?, figures: row.outcome.as_ref().ok()? })
        })
        // One that makes it worse is none; one that is faster may take a little.
        .filter(|one| {
            let little = if one.is_free() && one.cost.2 < 0.0 { base.peak_allocated / LITTLE } else { 0 };
            one.figures.peak_allocated <= base.peak_allocated + little && one.lever.name != WITHOUT_OWN
        })
        .collect();
    ranked.sort_by(|one, other| order(&one.cost, &other.cost));
    let mut chosen = of_each(ranked.iter().filter(|one| one.is_free()));
    let (spared, worth) = (spared(&ranked, &chosen), step(answer) * WORTH);
    if let Some(one) = ranked.iter().find(|one| one.figures.fits && one.is_free() && one.cost.2 <= spared + worth) {
        return Ok(Some(Combination { levers: vec![one.lever.clone()], figures: one.figures.clone() }));
    }
    let mut search = Search { bench, answer, trials: 0 };
    let mut best = if chosen.is_empty() { None } else { search.measure(&chosen)? };
    if best.is_none() {
        chosen.clear(); // they do not run together
    }
    if !best.as_ref().is_some_and(|best| best.fits) {
        (chosen, best) = cheapest(&mut search, &ranked, &chosen, best)?;
    }
    search.trials = 0;
    for one in ranked.iter().filter(|one| !one.is_free()) {
        if best.as_ref().is_some_and(|best| best.fits) {
            break;
        }
        let more = with(&chosen, &[one.lever]);
        let Some(figures) = search.measure(&more)? else { continue };
        let before = best.as_ref().unwrap_or(base);
        if before.peak_allocated > figures.peak_allocated || need(before) > need(&figures) {
            (chosen, best) = (more, Some(figures));
        }
    }
    let Some(mut figures) = best else { return Ok(None) };
    let enough = seconds(answer, &figures) + worth;
    chosen.sort_by_key(|lever| ranked.iter().position(|one| one.lever.name == lever.name));
    // The costliest first; each is tried whatever the search took.
    search.trials = 0;
    for index in (0..chosen.len()).rev() {
        let mut fewer = chosen.clone();
        fewer.remove(index);
        let is_enough = |without: &LeverFigures| match (without.fits, figures.fits) {
            (true, true) => seconds(answer, without) <= enough,
            (fits, fitted) => fits || (!fitted && need(without) <= need(&figures)),
        };
        if let Some(without) = search.measure(&fewer)?.filter(is_enough) {
            (chosen, figures) = (fewer, without);
        }
    }
    let mut levers: Vec<FoundLever> = chosen.into_iter().cloned().collect();
    if let (Some(spill), Some(lever)) = (&figures.spill, levers.iter_mut().find(|lever| lever.name == SPILL)) {
        lever.what.clone_from(&spill.what); // its plan with the others
    }
    Ok((!levers.is_empty()).then_some(Combination { levers, figures }))
}

/// Levers that can be applied together; of two that exclude each other the one that saves most alone, else the one that costs nothing, else
/// the dearest, as what saves may not show before others are applied.
fn of_each<'a: 'b, 'b>(levers: impl Iterator<Item = &'b Alone<'a>>) -> Vec<&'a FoundLever> {
    let mut chosen: Vec<&Alone<'a>> = Vec::new();
    for one in levers {
        let others: Vec<usize> = (0..chosen.len()).filter(|&other| chosen[other].lever.excludes(one.lever)).collect();
        match others.as_slice() {
            [] => chosen.push(one),
            &[other] => {
                let before = chosen[other].figures.peak_allocated;
                let most = if chosen[other].is_free() { before - before / LITTLE } else { before + 1 };
                if one.figures.peak_allocated < most {
                    chosen[other] = one;
                }
            }
            _ => {}
        }
    }
    chosen.into_iter().map(|one| one.lever).collect()
}

/// Seconds that levers which cost nothing save together, as a negative number.
fn spared(ranked: &[Alone<'_>], levers: &[&FoundLever]) -> f64 {
    ranked.iter().filter(|one| levers.iter().any(|lever| lever.name == one.lever.name)).map(|one| one.cost.2).sum()
}

/// Levers and some more, which take the place of those that they exclude.
fn with<'a>(levers: &[&'a FoundLever], more: &[&'a FoundLever]) -> Vec<&'a FoundLever> {
    let is_kept = |lever: &&&FoundLever| !more.iter().any(|other| other.excludes(lever));
    levers.iter().filter(is_kept).chain(more).copied().collect()
}

/// Sets that were tried.
struct TriedSets<'a, 'b> {
    ranked: &'b [Alone<'a>],
    /// The cheapest that fits, or what came nearest.
    levers: Vec<&'a FoundLever>,
    figures: Option<LeverFigures>,
    failed: Vec<Vec<&'a FoundLever>>,
}

impl<'a> TriedSets<'a, '_> {
    fn cost(&self, answer: &Answer) -> Option<f64> {
        self.figures.as_ref().filter(|best| best.fits).map(|best| seconds(answer, best))
    }

    /// Whether a set is part of one that does not fit, or has in place of one of its levers another that saves less.
    fn is_hopeless(&self, levers: &[&FoundLever]) -> bool {
        let peak = |lever: &FoundLever| {
            self.ranked.iter().find(|one| one.lever.name == lever.name).map_or(0, |one| one.figures.peak_allocated)
        };
        let does_less = |lever: &FoundLever, other: &FoundLever| {
            other.name != SPILL && other.excludes(lever) && peak(other) < peak(lever)
        };
        let is_part = |of: &Vec<&FoundLever>| {
            levers.iter().all(|lever| of.iter().any(|other| other.name == lever.name || does_less(lever, other)))
        };
        self.failed.iter().any(is_part)
    }

    /// Tries a set: whether it fits.
    fn fits(&mut self, search: &mut Search<'_, '_>, levers: &[&'a FoundLever]) -> Result<bool, Error> {
        if self.is_hopeless(levers) {
            return Ok(false);
        }
        let Some(figures) = search.measure(levers)? else { return Ok(false) };
        let worth = |one: &LeverFigures| (!one.fits, if one.fits { seconds(search.answer, one) } else { 0.0 });
        let is_better = self.figures.as_ref().is_none_or(|best| {
            let (old, new) = (worth(best), worth(&figures));
            new < old || (new == old && !figures.fits && need(best) > need(&figures))
        });
        let fits = figures.fits;
        if is_better {
            (self.levers, self.figures) = (levers.to_vec(), Some(figures));
        }
        if !fits {
            self.failed.push(levers.to_vec());
        }
        Ok(fits)
    }
}

/// Tries what costs nothing with sets of levers that keep the numbers and the GPU: first all, less one after the other; then those of up to
/// three that may cost less than the cheapest that fits: which is returned, or what came nearest.
fn cheapest<'a>(
    search: &mut Search<'_, '_>,
    ranked: &[Alone<'a>],
    free: &[&'a FoundLever],
    best: Option<LeverFigures>,
) -> Result<(Vec<&'a FoundLever>, Option<LeverFigures>), Error> {
    let paying: Vec<&Alone<'a>> = ranked.iter().filter(|one| !one.is_free() && one.is_same()).collect();
    let (spared, worth) = (spared(ranked, free), step(search.answer) * WORTH);
    let mut tried = TriedSets { ranked, levers: free.to_vec(), figures: best, failed: Vec::new() };
    // One that fits alone needs no trial.
    for one in ranked.iter().filter(|one| one.figures.fits && one.is_same()) {
        tried.fits(search, &[one.lever])?;
    }
    let is_meant = |one: &&Alone<'a>| !one.is_free() || free.iter().any(|lever| lever.name == one.lever.name);
    let mut all = of_each(ranked.iter().filter(|one| one.is_same()).filter(is_meant));
    if tried.cost(search.answer).is_none() && tried.fits(search, &all)? {
        for one in paying.iter().rev() {
            let fewer: Vec<&FoundLever> = all.iter().filter(|lever| lever.name != one.lever.name).copied().collect();
            if fewer.len() < all.len() && tried.fits(search, &fewer)? {
                all = fewer;
            }
        }
    }
    for (least, levers) in sets(search, &paying, spared, free.is_empty()) {
        if tried.cost(search.answer).is_none_or(|cost| cost > least + worth) {
            tried.fits(search, &with(free, &levers))?;
        }
    }
    Ok((tried.levers, tried.figures))
}

/// Sets of up to three levers, the probably cheapest first, each with the least that it may cost.
fn sets<'a>(
    search: &Search<'_, '_>,
    paying: &[&Alone<'a>],
    spared: f64,
    is_bare: bool,
) -> Vec<(f64, Vec<&'a FoundLever>)> {
    let base = search.answer.base.outcome.as_ref();
    let missing = base.map_or(0, |base| base.needed.unwrap_or(0).saturating_sub(search.bench.goal)) as f64;
    let saves = |one: &Alone<'_>| base.map_or(0, |base| base.peak_allocated.saturating_sub(one.figures.peak_allocated));
    let mut found: Vec<(f64, f64, Vec<&FoundLever>)> = Vec::new();
    for mask in (1_u32..1 << paying.len().min(16)).filter(|mask| mask.count_ones() <= 3) {
        let set = paying.iter().enumerate().filter(|(place, _)| mask >> place & 1 == 1).map(|(_, one)| *one);
        let levers: Vec<&FoundLever> = set.clone().map(|one| one.lever).collect();
        if levers.iter().any(|one| levers.iter().any(|other| one.name != other.name && one.excludes(other))) {
            continue;
        }
        // A plan to spill costs less the more others save, at the least nothing.
        let (spill, others): (Vec<_>, Vec<_>) = set.partition(|one| one.lever.name == SPILL);
        let spill = spill.first().map_or(0.0, |one| one.cost.2);
        let left = (1.0 - others.iter().map(|one| saves(one)).sum::<u64>() as f64 / missing.max(1.0)).max(0.0);
        let cost = spared + others.iter().map(|one| one.cost.2).sum::<f64>();
        found.push((cost + spill * left, if is_bare && others.is_empty() { cost + spill } else { cost }, levers));
    }
    // Of sets that may cost the same a large one is tried before its parts, which cannot fit where it does not.
    found.sort_by(|one, other| one.0.total_cmp(&other.0).then(other.2.len().cmp(&one.2.len())));
    found.into_iter().map(|(_, least, levers)| (least, levers)).collect()
}

/// What order sets that do not fit are in: what nobody knows last.
fn need(figures: &LeverFigures) -> (bool, Option<u64>, u64) {
    (figures.needed.is_none(), figures.needed, figures.peak_allocated)
}

struct Search<'a, 'b> {
    bench: &'a mut Bench<'b>,
    answer: &'a Answer,
    trials: usize,
}

impl Search<'_, '_> {
    /// What a set needs; none if it does not run, or no more is tried.
    fn measure(&mut self, levers: &[&FoundLever]) -> Result<Option<LeverFigures>, Error> {
        if levers.is_empty() {
            return Ok(self.answer.base.outcome.clone().ok());
        }
        if let [alone] = levers {
            let row =
                self.answer.rows.iter().find(|row| row.lever.as_ref().is_some_and(|lever| lever.name == alone.name));
            return Ok(row.and_then(|row| row.outcome.clone().ok()));
        }
        self.trials += 1;
        if self.trials > MOST_TRIALS || self.bench.is_stopped() {
            return Ok(None);
        }
        let names: Vec<String> = levers.iter().map(|lever| lever.name.clone()).collect();
        let aim = self.bench.spill;
        let line = self.bench.line(&names, Some(&value_with(&names, &self.answer.at)));
        let found = self.bench.run(std::slice::from_ref(&line), "levers together")?;
        let Some(first) = found.tried.get(&(0, 0)) else { return Ok(None) };
        // Of a plan that fell far short no other will do.
        let short = self.bench.figures(Some(first)).and_then(Result::ok).and_then(|found| found.needed);
        let is_near = short.is_some_and(|needed| needed.saturating_sub(self.bench.goal) < self.bench.goal / NEAR);
        let tried =
            if is_near { aim_lower(self.bench, self.answer, &names, Arc::clone(first))? } else { Arc::clone(first) };
        self.bench.spill = aim;
        let applied = tried.levers.as_ref().map(|notes| notes.applied.as_slice()).unwrap_or_default();
        if !names.iter().all(|name| applied.contains(name)) {
            return Ok(None);
        }
        Ok(self.bench.figures(Some(&tried)).and_then(Result::ok))
    }
}
