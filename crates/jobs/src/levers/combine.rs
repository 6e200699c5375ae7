//! The cheapest set of levers that fits.
//!
//! Levers do not add up: with the activations gone the optimizer's step is the peak. So sets are tried: all that cost nothing; with them
//! sets of up to three others, the cheapest first; then one more at a time, those too that change the numbers or take more GPUs; and at the
//! end, what is not needed after all is taken out again.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::fit::Error;
use crate::fit::notes::FoundLever;
use crate::levers::{Answer, Bench, LeverFigures, Row, SHARDED, SPILL, WITHOUT_OWN, aim_lower, value_with};

/// Sets that are tried at most, of those with the script's numbers on its GPU and of the others each.
const MOST_TRIALS: usize = 16;

/// The part of a step that is noise: a counter, a scalar, a page that is taken at another moment.
const NOISE: f64 = 0.002;

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
    fn is_free(&self) -> bool {
        self.cost == (false, 0, 0.0)
    }
}

fn cost(answer: &Answer, row: &Row) -> Option<Cost> {
    let (lever, figures) = (row.lever.as_ref()?, row.outcome.as_ref().ok()?);
    let gpus = lever.name.strip_prefix(SHARDED).and_then(|ranks| ranks.parse::<u32>().ok()).unwrap_or(1);
    Some((lever.numerics == "change", gpus.saturating_sub(1), seconds(answer, figures)))
}

/// Seconds that each step takes longer; 0 where that is noise.
fn seconds(answer: &Answer, figures: &LeverFigures) -> f64 {
    let step = answer.base.outcome.as_ref().ok().and_then(|base| base.step_us).unwrap_or(0) as f64 / 1e6;
    answer.extra_seconds(figures).filter(|more| *more > step * NOISE).unwrap_or(0.0)
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
        // One that makes it worse is none.
        .filter(|one| one.figures.peak_allocated <= base.peak_allocated && one.lever.name != WITHOUT_OWN)
        .collect();
    ranked.sort_by(|one, other| order(&one.cost, &other.cost));
    if let Some(one) = ranked.iter().find(|one| one.figures.fits && one.is_free()) {
        return Ok(Some(Combination { levers: vec![one.lever.clone()], figures: one.figures.clone() }));
    }
    let mut search = Search { bench, answer, trials: 0 };
    let mut chosen = all_free(&ranked);
    let mut best = if chosen.is_empty() { None } else { search.measure(&chosen)? };
    if best.is_none() {
        chosen.clear(); // they do not run together
    }
    if !best.as_ref().is_some_and(|best| best.fits) {
        cheapest(&mut search, &ranked, &mut chosen, &mut best)?;
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
    // The costliest first; each is tried whatever the search took.
    search.trials = 0;
    for index in (0..chosen.len()).rev() {
        let mut fewer = chosen.clone();
        fewer.remove(index);
        let is_as_cheap = |without: &LeverFigures| seconds(answer, without) <= seconds(answer, &figures);
        let is_enough = |without: &LeverFigures| match (without.fits, figures.fits) {
            (true, true) => is_as_cheap(without),
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

/// All that cost nothing; of those that exclude each other the one that saves most alone.
fn all_free<'a>(ranked: &[Alone<'a>]) -> Vec<&'a FoundLever> {
    let mut chosen: Vec<&Alone<'a>> = Vec::new();
    for one in ranked.iter().filter(|one| one.is_free()) {
        match chosen.iter().position(|other| other.lever.excludes(one.lever)) {
            Some(index) if chosen[index].figures.peak_allocated > one.figures.peak_allocated => chosen[index] = one,
            Some(_) => {}
            None => chosen.push(one),
        }
    }
    chosen.into_iter().map(|one| one.lever).collect()
}

/// Levers and some more, which take the place of those that they exclude.
fn with<'a>(levers: &[&'a FoundLever], more: &[&'a FoundLever]) -> Vec<&'a FoundLever> {
    let is_kept = |lever: &&&FoundLever| !more.iter().any(|other| other.excludes(lever));
    levers.iter().filter(is_kept).chain(more).copied().collect()
}

/// Tries what costs nothing with each set of up to three levers that keep the numbers and the GPU, the cheapest first, until no set can
/// cost less than the cheapest that fits; `chosen` and `best` become that set, or what came nearest. Of a set that does not fit no part does.
fn cheapest<'a>(
    search: &mut Search<'_, '_>,
    ranked: &[Alone<'a>],
    chosen: &mut Vec<&'a FoundLever>,
    best: &mut Option<LeverFigures>,
) -> Result<(), Error> {
    let paying: Vec<&Alone<'a>> =
        ranked.iter().filter(|one| !one.is_free() && !one.cost.0 && one.cost.1 == 0).collect();
    let free = chosen.clone();
    // A plan to spill costs less the more others save, at the least nothing.
    let least = |one: &Alone<'_>, is_alone: bool| if one.lever.name == SPILL && !is_alone { 0.0 } else { one.cost.2 };
    let mut sets: Vec<(f64, Vec<&Alone<'a>>)> = vec![(0.0, Vec::new())];
    let mut from = 0;
    for _size in 0..3 {
        let until = sets.len();
        for index in from..until {
            for (place, one) in paying.iter().enumerate() {
                let set = &sets[index].1;
                let is_later = set.last().is_none_or(|last| is_before(&paying, last, place));
                if is_later && !set.iter().any(|other| other.lever.excludes(one.lever)) {
                    let larger = [set.as_slice(), &[*one]].concat();
                    let is_alone = larger.len() == 1 && free.is_empty();
                    sets.push((larger.iter().map(|one| least(one, is_alone)).sum(), larger));
                }
            }
        }
        from = until;
    }
    // Of sets that may cost the same a large one is tried before its parts, which cannot fit where it does not; one lever needs no trial.
    let place = |set: &Vec<&Alone<'_>>| if set.len() < 2 { 0 } else { 4 - set.len() };
    sets.sort_by(|(one, few), (other, more)| one.total_cmp(other).then(place(few).cmp(&place(more))));
    let mut failed: Vec<Vec<&'a FoundLever>> = Vec::new();
    for (least, set) in sets.iter().filter(|(_, set)| !set.is_empty()) {
        if best.as_ref().is_some_and(|best| best.fits && seconds(search.answer, best) <= *least) {
            return Ok(());
        }
        let levers: Vec<&FoundLever> = set.iter().map(|one| one.lever).collect();
        let all = match set.as_slice() {
            [one] if one.figures.fits && one.lever.name != SPILL => levers,
            _ => with(&free, &levers),
        };
        let is_part = |of: &Vec<&FoundLever>| all.iter().all(|lever| of.iter().any(|other| other.name == lever.name));
        if failed.iter().any(is_part) {
            continue;
        }
        let Some(figures) = search.measure(&all)? else { continue };
        let worth = |one: &LeverFigures| (!one.fits, if one.fits { seconds(search.answer, one) } else { 0.0 });
        let is_better = best.as_ref().is_none_or(|best| {
            let (old, new) = (worth(best), worth(&figures));
            new < old || (new == old && !figures.fits && need(best) > need(&figures))
        });
        if is_better {
            (*chosen, *best) = (all.clone(), Some(figures.clone()));
        }
        if !figures.fits {
            failed.push(all);
        }
    }
    // Alone it may be all that fits.
    let alone = ranked.iter().find(|one| one.lever.name == SPILL && one.figures.fits);
    if let Some(one) = alone.filter(|_| !best.as_ref().is_some_and(|best| best.fits)) {
        (*chosen, *best) = (vec![one.lever], Some(one.figures.clone()));
    }
    Ok(())
}

/// What order sets that do not fit are in: what nobody knows last.
fn need(figures: &LeverFigures) -> (bool, Option<u64>, u64) {
    (figures.needed.is_none(), figures.needed, figures.peak_allocated)
}

fn is_before(levers: &[&Alone<'_>], one: &Alone<'_>, place: usize) -> bool {
    levers.iter().take(place).any(|other| other.lever.name == one.lever.name)
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
