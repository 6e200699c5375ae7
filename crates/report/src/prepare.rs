//! From a recording to what a report is made of: plans and replays, once for every output.

use std::collections::BTreeMap;

use stalloc_trace::{Recording, Trace};

use crate::{Input, Subject};

/// Plans and replays every device of a recording.
///
/// `progress` is told what is being done.
pub fn prepare(name: &str, recording: Recording, progress: &mut dyn FnMut(&str)) -> Input {
    let devices = recording.traces.into_iter().map(|trace| subject(trace, progress)).collect();
    Input { name: name.to_owned(), format: recording.format.name().to_owned(), warnings: recording.warnings, devices }
}

fn subject(trace: Trace, progress: &mut dyn FnMut(&str)) -> Subject {
    progress("working out the report");
    Subject { trace, plan: None, replays: Vec::new(), steps: Vec::new(), fits: BTreeMap::new(), notes: Vec::new() }
}
