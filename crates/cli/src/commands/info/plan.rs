//! `stalloc info` of a plan.

use std::path::Path;

use stalloc_jobs::describing;
use stalloc_plan::Plan;

use crate::error::Error;
use crate::output::{self, Table};

/// Prints what a plan holds.
pub fn print(path: &Path, plan: &Plan, json: bool) -> Result<(), Error> {
    let info = describing::plan(plan);
    if json {
        return output::json(&info);
    }
    output::line(&format!(
        "plan for device {}: addresses of {} for {} requests, no plan needs less than {}; {} live at most",
        info.device,
        output::bytes(info.arena),
        output::count(info.slots),
        output::bytes(info.lower_bound),
        output::bytes(info.expected_peak),
    ))?;
    let mut table = Table::new(&["section", "kind", "seen", "planned requests", "without an offset"]);
    for section in &info.sections {
        table.row(vec![
            section.name.to_owned(),
            section.kind.to_owned(),
            output::count(section.runs.into()),
            output::count(section.planned),
            output::count(section.dynamic),
        ]);
    }
    table.print()?;
    output::line(&format!("  made from the recording with fingerprint {}", info.fingerprint))?;
    for (key, value) in info.metadata {
        output::line(&format!("  {key}: {value}"))?;
    }
    output::next(&format!("stalloc verify {}", path.display()), "checks that no two of its blocks overlap")
}
