//! `stalloc info` of a plan.

use std::collections::BTreeMap;

use serde::Serialize;
use stalloc_plan::{Entry, Plan, SectionKind};

use crate::error::Error;
use crate::output::{self, Table};

/// What `--json` prints.
#[derive(Serialize)]
struct PlanInfo<'a> {
    format: &'static str,
    device: u32,
    fingerprint: String,
    arena: u64,
    lower_bound: u64,
    alignment: u64,
    slots: u64,
    expected_peak: u64,
    sections: Vec<SectionInfo<'a>>,
    metadata: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct SectionInfo<'a> {
    name: &'a str,
    kind: &'static str,
    runs: u32,
    planned: u64,
    dynamic: u64,
}

/// Prints what a plan holds.
pub fn print(plan: &Plan, json: bool) -> Result<(), Error> {
    let sections = plan.sections.iter().map(|section| {
        let planned = section.entries.iter().filter(|entry| matches!(entry, Entry::Slot(_))).count() as u64;
        SectionInfo {
            name: &section.name,
            kind: kind(section.kind),
            runs: section.runs,
            planned,
            dynamic: section.entries.len() as u64 - planned,
        }
    });
    let info = PlanInfo {
        format: "plan",
        device: plan.device,
        fingerprint: format!("{:016x}", plan.fingerprint),
        arena: plan.arena,
        lower_bound: plan.lower_bound,
        alignment: plan.alignment,
        slots: plan.slots.len() as u64,
        expected_peak: plan.expected_peak,
        sections: sections.collect(),
        metadata: &plan.metadata,
    };
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
    Ok(())
}

/// What a section is, for people.
fn kind(kind: SectionKind) -> &'static str {
    match kind {
        SectionKind::Prologue => "before the first step",
        SectionKind::Once => "once",
        SectionKind::Repeating => "repeating",
    }
}
