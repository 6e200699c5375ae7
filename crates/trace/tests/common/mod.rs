//! Real inputs for the tests, where they are.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod pickled;

use std::path::{Path, PathBuf};

use stalloc_trace::{Input, Recording, open};

/// All real snapshots; says so where there are none.
pub fn snapshots() -> Vec<PathBuf> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let mut files = Vec::new();
    for folder in ["snapshots", "traces"] {
        let Ok(entries) = std::fs::read_dir(data.join(folder)) else {
            eprintln!("SKIPPED: no real snapshots in {}", data.join(folder).display());
            continue;
        };
        files.extend(entries.map(|entry| entry.unwrap().path()).filter(|p| p.to_string_lossy().contains(".pickle")));
    }
    files.sort();
    files
}

/// Reads a recording.
pub fn read(path: &Path) -> Recording {
    match open(path, &mut |_, _| {}).unwrap() {
        Input::Recording(recording) => recording,
        Input::Instance(_) => panic!("{} is no recording", path.display()),
    }
}
