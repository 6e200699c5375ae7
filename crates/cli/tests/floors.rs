//! A crate imports only from floors below its own.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;

/// The floors, lowest first.
const FLOORS: [&[&str]; 10] = [
    &["common", "dryrun-setup", "order", "tuning"],
    &["planner", "trace", "device", "dryrun"],
    &["plan"],
    &["synthesizer", "allocator"],
    &["learning"],
    &["simulator", "runtime", "recorder"],
    &["report", "launcher"],
    &["jobs"],
    &["cli"],
    &["python"],
];

/// The workspace's crates that a manifest names under `[dependencies]`. Tests and examples may look higher.
fn dependencies(manifest: &str) -> Vec<String> {
    manifest
        .lines()
        .skip_while(|line| line.trim() != "[dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.strip_prefix("stalloc-"))
        .map(|line| line.chars().take_while(|&character| character.is_alphanumeric() || character == '-').collect())
        .collect()
}

#[test]
fn a_crate_imports_only_from_floors_below_its_own() -> Result<(), Box<dyn Error>> {
    let floors: BTreeMap<&str, usize> =
        FLOORS.iter().enumerate().flat_map(|(floor, names)| names.iter().map(move |&name| (name, floor))).collect();
    let floor_of = |name: &str| floors.get(name).copied().ok_or(format!("{name} is on no floor: add it to FLOORS"));
    let mut found = 0;
    for folder in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))? {
        let folder = folder?;
        let manifest = folder.path().join("Cargo.toml");
        if !manifest.is_file() {
            continue;
        }
        let name = folder.file_name().into_string().map_err(|name| format!("{name:?}"))?;
        for imported in dependencies(&fs::read_to_string(manifest)?) {
            found += 1;
            assert!(floor_of(&imported)? < floor_of(&name)?, "{name} imports {imported}, which is not below it");
        }
    }
    assert!(found > FLOORS.len(), "the manifests are read: {found} imports between crates");
    Ok(())
}
