//! A crate imports only from floors below its own.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;

/// The floor of each crate, as the picture in docs/architecture.md has it: lines of a number, a name and what it is.
fn floors(page: &str) -> BTreeMap<&str, u32> {
    let picture = page.lines().skip_while(|line| *line != "## The floors").skip_while(|line| *line != "```").skip(1);
    picture.take_while(|line| *line != "```").filter_map(floor).collect()
}

/// The crate and its floor that a line of the picture names.
fn floor(line: &str) -> Option<(&str, u32)> {
    let (number, rest) = line.trim_start().split_once("  ")?;
    Some((rest.split_once("  ")?.0, number.parse().ok()?))
}

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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/architecture.md"))?;
    let floors = floors(&page);
    let floor_of = |name: &str| {
        floors.get(name).copied().ok_or(format!("{name} is on no floor: add it to the picture in docs/architecture.md"))
    };
    let (mut crates, mut found) = (0, 0);
    for folder in fs::read_dir(root.join("crates"))? {
        let folder = folder?;
        let manifest = folder.path().join("Cargo.toml");
        if !manifest.is_file() {
            continue;
        }
        let name = folder.file_name().into_string().map_err(|name| format!("{name:?}"))?;
        let own = floor_of(&name)?;
        crates += 1;
        for imported in dependencies(&fs::read_to_string(manifest)?) {
            found += 1;
            assert!(floor_of(&imported)? < own, "{name} imports {imported}, which is not below it");
        }
    }
    assert_eq!(crates, floors.len(), "the picture has a crate that there is not");
    assert!(found > crates, "the manifests are read: {found} imports between crates");
    Ok(())
}
