//! The independent check of plans and solved instances.

use std::path::Path;

use stalloc_plan::{Findings, Rectangle, check_rectangles};
use stalloc_trace::{Input, InstanceRow, InstanceTable};

use crate::{Error, Watch, inputs};

/// Checks a plan, or an instance with offsets; a plan also against the recording `input`, if there is one.
///
/// # Errors
/// If a file cannot be read or is of another kind. A plan that is wrong is an answer, not an error.
pub fn verify(path: &Path, input: Option<&Path>, watch: &mut dyn Watch) -> Result<Findings, Error> {
    if inputs::is_plan(path) {
        let plan = inputs::plan(path)?;
        let findings = plan.check();
        let Some(input) = input else { return Ok(findings) };
        let recording = inputs::recording(input, watch)?;
        // A plan that ranks share names the GPU of the first of them; what was recorded on one GPU alone is meant.
        let device = (recording.traces.len() != 1).then_some(plan.device);
        let trace = inputs::device(input, recording, device, watch)?;
        return Ok(findings.and(plan.check_against(&trace)));
    }
    if input.is_some() {
        return Err(Error::NotAPlan(path.to_owned()));
    }
    let Input::Instance(instance) = inputs::open(path, watch)? else {
        return Err(Error::IsRecording(path.to_owned()));
    };
    let missing = instance.rows.iter().filter(|row| row.offset.is_none()).count();
    match rectangles(&instance) {
        Some(rectangles) => Ok(check_rectangles(&rectangles, None)),
        None => Err(Error::NoOffsets { path: path.to_owned(), missing, rows: instance.rows.len() }),
    }
}

/// The buffers of an instance at their offsets; `None` if one has none.
fn rectangles(instance: &InstanceTable) -> Option<Vec<Rectangle>> {
    let (mut rectangles, mut gaps) = (Vec::with_capacity(instance.rows.len()), Vec::new());
    for row in &instance.rows {
        let InstanceRow { lower, upper, size, alignment, .. } = *row;
        let offset = row.offset?;
        if row.gaps.is_empty() {
            rectangles.push(Rectangle { lower, upper, size, alignment, offset });
            continue;
        }
        // The whole of it has to be aligned and to end somewhere, its pieces have to be in nobody's way.
        rectangles.push(Rectangle { lower, upper: lower, size, alignment, offset });
        gaps.extend(row.pieces().into_iter().map(|(lower, upper, from, to)| Rectangle {
            lower,
            upper,
            size: to - from,
            alignment: 1,
            offset: offset.saturating_add(from),
        }));
    }
    rectangles.append(&mut gaps);
    Some(rectangles)
}
