//! The report: one HTML file that shows where the memory goes, why, and what a plan would save.
//!
//! [`Report::new`] works everything out once; [`Report::html`], [`Report::figures`] and the pictures only write it down,
//! so that all of them show the same figures. The page is one file without any reference to the outside: figures and
//! columns of numbers are embedded compressed ([`columns`]), and the front end in `web/` draws them. A page is at most
//! 19 MB: curves keep their extremes, and maps leave out the smallest and shortest-lived blocks where there are too many.

#![forbid(unsafe_code)]

mod actual;
mod advice;
mod categories;
pub mod columns;
mod compare;
mod curve;
mod device;
mod diagnosis;
mod enlarged;
mod facts;
mod failure;
mod figures;
mod free_ranges;
pub mod frontier;
mod growth;
mod holders;
mod holes;
mod known;
mod layout;
mod live;
mod loops;
mod page;
mod picture;
mod plan_losses;
mod prepare;
mod sentence;
mod sites;
mod snapshot;
mod steps;
mod table;
mod terminal;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeMap;

use stalloc_plan::Plan;
use stalloc_simulator::Replay;
use stalloc_trace::{RequestId, Trace};
use thiserror::Error;

pub use categories::{Category, TensorPlaces, at_peak};
pub use facts::HolderBytes;
pub use figures::*;
pub use holes::{Hole, Holes, Neighbour, Pin, SegmentWaste};
pub use prepare::{CARDS, SAME, StageProgress, prepare};
pub use steps::StepSpan;
pub use terminal::Screen;

use crate::device::Analysis;

/// Why a report could not be made.
#[derive(Debug, Error)]
pub enum Error {
    /// The figures could not be written as JSON.
    #[error("the figures cannot be written: {0}")]
    Json(#[from] serde_json::Error),
    /// The data could not be compressed.
    #[error("the data cannot be compressed: {0}")]
    Compress(#[from] std::io::Error),
    /// A map could not be compressed.
    #[error("a map cannot be written: {0}")]
    Map(#[from] png::EncodingError),
    /// A picture could not be drawn.
    #[error("the picture cannot be drawn: {0}")]
    Draw(String),
    /// There is no such device, or no plan for it.
    #[error("{0}")]
    Nothing(&'static str),
    /// The names in the input take more than 4 GiB.
    #[error("the input's names are too large for a page")]
    TooLarge,
}

/// One device of an input, planned and replayed.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its trace, with the request that failed, if one did.
    pub trace: Trace,
    /// That request.
    pub failed: Option<RequestId>,
    /// What the process had or could have had when it failed, bytes, where the recording says so.
    pub capacity: Option<u64>,
    /// Its plan, if one was made.
    pub plan: Option<Plan>,
    /// What each allocator makes of it.
    pub replays: Vec<Replay>,
    /// Its steps, in order.
    pub steps: Vec<StepSpan>,
    /// For (allocator, card), or (allocator, [`SAME`]), whether it fits with less memory than it would take freely.
    pub fits: BTreeMap<(&'static str, &'static str), Fit>,
    /// What the reader should keep in mind, in sentences.
    pub notes: Vec<String>,
}

/// A file to report on: name, format, warnings, and of each device its trace, plan and replays.
#[derive(Clone, Debug)]
pub struct ReportInput {
    /// Its name for people.
    pub name: String,
    /// Its format.
    pub format: String,
    /// What was odd about it, in sentences.
    pub warnings: Vec<String>,
    /// Its devices.
    pub devices: Vec<Subject>,
}

/// A report, worked out.
pub struct Report<'a> {
    figures: Figures,
    devices: Vec<Vec<Analysis<'a>>>,
}

impl<'a> Report<'a> {
    /// Works a report out.
    pub fn new(inputs: &'a [ReportInput]) -> Self {
        let devices: Vec<Vec<Analysis<'a>>> =
            inputs.iter().map(|input| input.devices.iter().map(Analysis::new).collect()).collect();
        let mut figures = Figures {
            version: env!("CARGO_PKG_VERSION"),
            text: String::new(),
            comparisons: compare::all(&devices),
            inputs: inputs
                .iter()
                .zip(&devices)
                .map(|(input, devices)| InputFigures {
                    name: input.name.clone(),
                    format: input.format.clone(),
                    warnings: input.warnings.clone(),
                    devices: devices.iter().map(|one| one.figures.clone()).collect(),
                })
                .collect(),
        };
        figures.text = terminal::text(&figures, Screen { width: 100, height: 40 });
        Report { figures, devices }
    }

    /// The figures, as `stalloc report --json` prints them.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// The answer as text, for a terminal of some size.
    pub fn text(&self, screen: Screen) -> String {
        terminal::text(&self.figures, screen)
    }

    /// The answer in about ten lines.
    pub fn summary(&self, width: usize) -> String {
        terminal::summary(&self.figures, width)
    }

    /// The page, one HTML file.
    ///
    /// # Errors
    /// If the figures cannot be written.
    pub fn html(&self) -> Result<String, Error> {
        page::page(&self.figures, &self.devices)
    }

    /// The two main pictures of the first device of the first input: bytes over time, and the maps.
    ///
    /// # Errors
    /// If there is no device, or a map cannot be compressed.
    pub fn svg(&self) -> Result<String, Error> {
        let (name, analysis) = self.first()?;
        picture::svg(name, analysis)
    }

    /// The same pictures as a PNG.
    ///
    /// # Errors
    /// As [`Report::svg`].
    pub fn png(&self) -> Result<Vec<u8>, Error> {
        let (name, analysis) = self.first()?;
        picture::png(&picture::svg(name, analysis)?, analysis)
    }

    /// What the plan would have done on every device of the first input, as a PyTorch memory snapshot.
    ///
    /// # Errors
    /// If no device was planned.
    pub fn snapshot(&self) -> Result<Vec<u8>, Error> {
        let planned: Vec<_> = self
            .devices
            .first()
            .into_iter()
            .flatten()
            .filter_map(|one| Some((one, one.mapped.iter().find(|mapped| mapped.replay.allocator == "stalloc")?)))
            .collect();
        if planned.is_empty() {
            return Err(Error::Nothing(
                "no plan was made, so there is none to write a snapshot of: record a history of a few steps",
            ));
        }
        Ok(snapshot::snapshot(&planned))
    }

    fn first(&self) -> Result<(&str, &Analysis<'a>), Error> {
        let input = self.figures.inputs.first();
        let device = self.devices.first().and_then(|devices| devices.first());
        match (input, device) {
            (Some(input), Some(device)) => Ok((&input.name, device)),
            _ => Err(Error::Nothing("the input holds no device to draw")),
        }
    }
}
