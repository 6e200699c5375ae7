//! The peak with each lever, as a chart of who holds it.

use stalloc_common::CommandLine;
use stalloc_common::figures::bytes;
use stalloc_report::Category;
use stalloc_report::frontier::{self, Chart, FrontierLine, FrontierPoint};

use crate::fit;
use crate::levers::{Answer, LeverFigures};

/// The page of an answer: a bar for the script as it is, each lever and the set that was found, what saves most first.
pub fn page(command: &CommandLine, answer: &Answer) -> String {
    let figures = |row: &'_ super::Row| row.outcome.clone().ok();
    let mut bars: Vec<(String, LeverFigures)> =
        answer.rows.iter().filter_map(|row| Some((row.lever.as_ref()?.name.clone(), figures(row)?))).collect();
    bars.sort_by_key(|(_, figures)| figures.peak_allocated);
    if let Some(found) = answer.combination.as_ref().filter(|found| found.levers.len() > 1) {
        let names: Vec<&str> = found.levers.iter().map(|lever| lever.name.as_str()).collect();
        bars.insert(0, (names.join(" + "), found.figures.clone()));
    }
    bars.splice(0..0, figures(&answer.base).map(|base| ("as it is".to_owned(), base)));
    let held = |figures: &LeverFigures, category| {
        figures.holders.iter().find(|(one, _)| *one == category).map_or(0, |(_, bytes)| *bytes)
    };
    let line = |category: Category| FrontierLine {
        allocator: category.name().to_owned(),
        points: bars
            .iter()
            .map(|(_, figures)| held(figures, category))
            .map(|held| Some(FrontierPoint { value: held as f64, text: bytes(held) }).filter(|_| held > 0))
            .collect(),
    };
    let mut lines: Vec<FrontierLine> = Category::ALL.into_iter().map(line).collect();
    lines.retain(|line| line.points.iter().any(Option::is_some));
    let chart = Chart {
        title: fit::picture::title(answer.gpu.product, &answer.at),
        across: "lever".to_owned(),
        up: "peak allocated".to_owned(),
        is_bytes: true,
        is_stacked: true,
        values: bars.into_iter().map(|(name, _)| name).collect(),
        lines,
        limit: Some((format!("to fit into: {}", bytes(answer.goal)), answer.goal as f64)),
    };
    let mut about = vec![command.to_string()];
    about.push("Who holds the largest live bytes, tried without a GPU. Activations wait for the backward pass; temporaries do not. \
        What CUDA and its libraries take is not part of it.".to_owned());
    if answer.is_interrupted {
        about.push("Stopped before everything was tried.".to_owned());
    }
    frontier::page("Peak by lever", &about, &[chart])
}
