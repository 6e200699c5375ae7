//! The cheapest set of levers that fits.
//!
//! Levers do not add up: with the activations gone the optimizer's step is the peak. So sets are tried, in an order that costs little:
//! a lever that is enough alone; all that cost nothing; then one more at a time, the cheapest first; and at the end, what is not needed
//! after all is taken out again.

use crate::fit::Error;
use crate::fit::notes::FoundLever;
use crate::levers::{ACCUMULATE, Answer, Bench, LeverFigures, Rates, Row, value_with};

/// Sets that are tried at most before what is not needed is taken out.
const MOST_TRIALS: usize = 16;

/// Rates for the order alone, where those of the GPU are not known.
const USUAL: Rates = Rates { flops: 3e14, host: 3e10 };

/// What smaller kernels cost, in parts of the step's operations: for the order alone.
const SMALLER_KERNELS: f64 = 0.02;

/// A set of levers.
#[derive(Clone, Debug)]
pub struct Combination {
    /// Which; none: the script fits as it is.
    pub levers: Vec<FoundLever>,
    /// What it needs.
    pub figures: LeverFigures,
}

/// What a lever costs: whether the numbers change, then seconds of a step.
fn cost(answer: &Answer, row: &Row) -> Option<(bool, f64)> {
    let (lever, figures) = (row.lever.as_ref()?, row.outcome.as_ref().ok()?);
    let rates = answer.rates.unwrap_or(USUAL);
    let base = answer.base.outcome.as_ref().ok()?.flops.unwrap_or(0) as f64 / rates.flops;
    let flops = answer.extra_flops(figures).unwrap_or(0).max(0) as f64 / rates.flops;
    let host = answer.extra_host_bytes(figures).unwrap_or(0).max(0) as f64 / rates.host;
    let smaller = if lever.name == ACCUMULATE { SMALLER_KERNELS * base } else { 0.0 };
    // Less than a thousandth of a step is noise: a counter, a scalar.
    let seconds = flops + host + smaller;
    Some((lever.numerics == "change", if seconds < base / 1000.0 { 0.0 } else { seconds }))
}

/// Looks for it; none if nothing can be said.
pub fn combine(bench: &mut Bench<'_>, answer: &Answer) -> Result<Option<Combination>, Error> {
    let Ok(base) = &answer.base.outcome else { return Ok(None) };
    if base.fits {
        return Ok(Some(Combination { levers: Vec::new(), figures: base.clone() }));
    }
    let mut ranked: Vec<((bool, f64), &FoundLever, &LeverFigures)> = answer
        .rows
        .iter()
        .filter_map(|row| Some((cost(answer, row)?, row.lever.as_ref()?, row.outcome.as_ref().ok()?)))
        // One that makes it worse is none.
        .filter(|(_, _, figures)| figures.peak_allocated <= base.peak_allocated)
        .collect();
    ranked.sort_by(|(one, ..), (other, ..)| one.partial_cmp(other).unwrap_or(std::cmp::Ordering::Equal));
    let mut search = Search { bench, answer, trials: 0 };
    let alone = ranked.iter().find(|(_, _, figures)| figures.fits);
    if let Some((_, lever, figures)) = alone.filter(|((_, seconds), ..)| *seconds == 0.0) {
        return Ok(Some(Combination { levers: vec![(*lever).clone()], figures: (*figures).clone() }));
    }
    let mut chosen: Vec<&FoundLever> = Vec::new();
    let mut best: Option<LeverFigures> = None;
    let is_free = |((changes, seconds), ..): &&((bool, f64), &FoundLever, &LeverFigures)| !changes && *seconds == 0.0;
    for (_, lever, figures) in ranked.iter().filter(is_free) {
        // Of a group the one that saves most alone.
        let rival = chosen.iter().position(|other| other.group == lever.group);
        let peak = |name: &str| ranked.iter().find(|(_, other, _)| other.name == name).map(|(.., f)| f.peak_allocated);
        match rival {
            Some(index) if peak(&chosen[index].name) > Some(figures.peak_allocated) => chosen[index] = lever,
            Some(_) => {}
            None => chosen.push(lever),
        }
    }
    if !chosen.is_empty() {
        best = search.measure(&chosen)?;
        if best.is_none() {
            chosen.clear(); // they do not run together
        }
    }
    if let (Some((_, lever, figures)), false) = (alone, best.as_ref().is_some_and(|best| best.fits)) {
        return Ok(Some(Combination { levers: vec![(*lever).clone()], figures: (*figures).clone() }));
    }
    let paying: Vec<_> = ranked.iter().filter(|one| !is_free(one)).collect();
    for (_, lever, _) in paying {
        if best.as_ref().is_some_and(|best| best.fits) {
            break;
        }
        let mut more: Vec<&FoundLever> = chosen.iter().copied().filter(|other| other.group != lever.group).collect();
        more.push(lever);
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
        let is_enough = |without: &LeverFigures| without.fits || (!figures.fits && need(without) <= need(&figures));
        if let Some(without) = search.measure(&fewer)?.filter(is_enough) {
            (chosen, figures) = (fewer, without);
        }
    }
    let levers: Vec<FoundLever> = chosen.into_iter().cloned().collect();
    Ok((!levers.is_empty()).then_some(Combination { levers, figures }))
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
        let line = self.bench.line(&names, Some(&value_with(&names, &self.answer.at)));
        let found = self.bench.run(std::slice::from_ref(&line), "levers together")?;
        let tried = found.tried.get(&(0, 0));
        let applied =
            tried.and_then(|tried| tried.levers.as_ref()).map(|notes| notes.applied.as_slice()).unwrap_or_default();
        if !names.iter().all(|name| applied.contains(name)) {
            return Ok(None);
        }
        Ok(self.bench.figures(tried).and_then(Result::ok))
    }
}
