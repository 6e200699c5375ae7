//! What fits, as charts.

use stalloc_common::figures::bytes;
use stalloc_dryrun_setup::Gpu;
use stalloc_report::frontier::{Chart, FrontierLine, FrontierPoint};
use stalloc_simulator::Kind;

use crate::fit::evaluate::{ALLOCATORS, FitsGpu};
use crate::fit::report::{Candidate, FitAnswer, Frontier};
use crate::fit::scheduler::words;
use crate::fit::values::{Assignment, Values};
use crate::fit::{Question, Share, Variable};

/// The page of a question's answer: where a range was searched within lists, the largest value for each value of one list; else what
/// each value that was tried needs, next to what the card has.
pub fn page(question: &Question, answer: &FitAnswer) -> String {
    let searched = question.variables.iter().find(|variable| matches!(variable.values, Values::Range { .. }));
    let list = longest_list(&question.variables);
    let (title, charts) = match (searched, list) {
        (Some(searched), Some(list)) => {
            (format!("The largest {} that fits", searched.name), largest(searched, list, answer))
        }
        (Some(variable), None) | (None, Some(variable)) => ("What it needs".to_owned(), needs(variable, answer)),
        (None, None) => ("What it needs".to_owned(), needs_as_it_is(answer)),
    };
    let mut about = vec![question.command.to_string()];
    about.push(
        "Tried without a GPU: what the program asked for was replayed under each allocator with what the card leaves. It fits if CUDA, its \
         libraries and NCCL take the most that is known."
            .to_owned(),
    );
    let ran = |gpu: &Gpu| answer.candidates.iter().find(|one| one.gpu == *gpu && one.failure.is_none());
    for one in question.gpus.iter().filter_map(ran) {
        let parts = one.outside.parts.iter().map(Share::to_string).collect::<Vec<_>>().join("; ");
        about.push(format!("Outside PyTorch on {}: {parts}.", one.gpu.product));
    }
    let failed: Vec<String> =
        answer.candidates.iter().filter(|one| one.failure.is_some()).map(|one| words(&one.values)).collect();
    if !failed.is_empty() {
        about.push(format!("Did not run, for another reason than memory: {}.", failed.join("; ")));
    }
    if answer.is_interrupted {
        about.push("Stopped before everything was tried.".to_owned());
    }
    stalloc_report::frontier::page(&title, &about, &charts)
}

/// The list that goes across: one of numbers before others, of those the longest.
fn longest_list(variables: &[Variable]) -> Option<&Variable> {
    let length = |variable: &&Variable| match &variable.values {
        Values::Range { .. } => None,
        Values::List(list) => Some((list.iter().all(|value| value.parse::<f64>().is_ok()), list.len())),
    };
    let lists = variables.iter().filter(|variable| length(variable).is_some());
    // Of equals the first.
    lists.rev().max_by_key(|variable| length(variable))
}

fn without(values: &Assignment, name: &str) -> Assignment {
    values.iter().filter(|(other, _)| other != name).cloned().collect()
}

fn value<'a>(values: &'a Assignment, name: &str) -> &'a str {
    values.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value)
}

/// What is drawn: a GPU, and values of variables.
pub fn title(product: &str, rest: &Assignment) -> String {
    if rest.is_empty() { product.to_owned() } else { format!("{product}, {}", words(rest)) }
}

fn lines(values: &[String], point: impl Fn(usize, &str) -> Option<FrontierPoint>) -> Vec<FrontierLine> {
    let line = |(index, kind): (usize, &Kind)| FrontierLine {
        allocator: kind.name().to_owned(),
        points: values.iter().map(|value| point(index, value)).collect(),
    };
    ALLOCATORS.iter().enumerate().map(line).collect()
}

fn largest(searched: &Variable, list: &Variable, answer: &FitAnswer) -> Vec<Chart> {
    let mut charts: Vec<Chart> = Vec::new();
    let mut done: Vec<(&str, Assignment)> = Vec::new();
    for first in &answer.frontier {
        let rest = without(&first.fixed, &list.name);
        if done.contains(&(first.gpu.name, rest.clone())) {
            continue;
        }
        let rows: Vec<&Frontier> = answer
            .frontier
            .iter()
            .filter(|row| row.gpu.name == first.gpu.name && without(&row.fixed, &list.name) == rest)
            .collect();
        let point = |allocator: usize, at: &str| {
            let row = rows.iter().find(|row| value(&row.fixed, &list.name) == at)?;
            let found = value(row.largest[allocator].as_ref()?, &searched.name);
            let more = if row.is_end[allocator] { " or more" } else { "" };
            let so_far = if row.is_complete { "" } else { ", so far" };
            Some(FrontierPoint { value: found.parse().ok()?, text: format!("{found}{more}{so_far}") })
        };
        let Values::List(values) = &list.values else { continue };
        charts.push(Chart {
            title: title(first.gpu.product, &rest),
            across: list.name.clone(),
            up: format!("the largest {}", searched.name),
            is_bytes: false,
            is_stacked: false,
            values: values.clone(),
            lines: lines(values, point),
            limit: None,
        });
        done.push((first.gpu.name, rest));
    }
    charts
}

fn needs(variable: &Variable, answer: &FitAnswer) -> Vec<Chart> {
    let mut charts: Vec<Chart> = Vec::new();
    let mut done: Vec<(&str, Assignment)> = Vec::new();
    for first in &answer.candidates {
        let rest = without(&first.values, &variable.name);
        if done.contains(&(first.gpu.name, rest.clone())) {
            continue;
        }
        let tried: Vec<&Candidate> = answer
            .candidates
            .iter()
            .filter(|one| one.gpu.name == first.gpu.name && without(&one.values, &variable.name) == rest)
            .collect();
        charts.push(needed(first, &rest, &variable.name, &tried, |one| value(&one.values, &variable.name).to_owned()));
        done.push((first.gpu.name, rest));
    }
    charts
}

fn needs_as_it_is(answer: &FitAnswer) -> Vec<Chart> {
    let chart = |one| needed(one, &Vec::new(), "the command", &[one], |_| "as it is".to_owned());
    answer.candidates.iter().map(chart).collect()
}

fn needed(
    first: &Candidate,
    rest: &Assignment,
    across: &str,
    tried: &[&Candidate],
    label: impl Fn(&Candidate) -> String,
) -> Chart {
    let values: Vec<String> = tried.iter().map(|one| label(one)).collect();
    let point = |allocator: usize, at: &str| {
        let one = tried.iter().find(|one| label(one) == at)?;
        let verdict = one.verdicts.get(allocator)?;
        let needed = verdict.needed?;
        let fits = match verdict.fits {
            FitsGpu::Yes => "fits",
            FitsGpu::Edge => "at the edge",
            FitsGpu::No => "does not fit",
        };
        Some(FrontierPoint { value: needed as f64, text: format!("{}, {fits}", bytes(needed)) })
    };
    Chart {
        title: title(first.gpu.product, rest),
        across: across.to_owned(),
        up: "needed in all".to_owned(),
        is_bytes: true,
        is_stacked: false,
        lines: lines(&values, point),
        values,
        limit: Some((format!("the card: {}", bytes(first.gpu.total)), first.gpu.total as f64)),
    }
}
