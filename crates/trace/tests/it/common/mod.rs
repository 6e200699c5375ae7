//! Real inputs for the tests, where they are.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod pickled;

use std::path::{Path, PathBuf};

use stalloc_trace::{Input, Recording, open};

/// A folder of real inputs: `snapshots` and `traces` of jobs, `dsa` of instances.
pub fn real(folder: &str) -> Vec<PathBuf> {
    let data = std::env::var_os("STALLOC_RECORDINGS").expect("STALLOC_RECORDINGS names the folder");
    let entries = std::fs::read_dir(Path::new(&data).join(folder)).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// All real snapshots.
pub fn snapshots() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = ["snapshots", "traces"].into_iter().flat_map(real).collect();
    files.retain(|path| path.to_string_lossy().contains(".pickle"));
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
