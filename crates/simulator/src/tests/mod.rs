//! What replays must do.

use std::path::PathBuf;

use stalloc_trace::{Input, Recording, open};

mod gmlake;
mod random;
mod recordings;

/// Recorded traces next to the project, if they are there.
fn recordings() -> Vec<(String, Recording)> {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let mut paths: Vec<PathBuf> = ["snapshots", "traces"]
        .iter()
        .filter_map(|folder| std::fs::read_dir(data.join(folder)).ok())
        .flat_map(|folder| folder.filter_map(Result::ok).map(|entry| entry.path()))
        .collect();
    paths.sort();
    if paths.is_empty() {
        eprintln!("SKIPPED: there are no recordings in {}", data.display());
    }
    let read = |path: PathBuf| match open(&path, &mut |_, _| {}) {
        Ok(Input::Recording(recording)) => Some((path.display().to_string(), recording)),
        Ok(_) => None,
        Err(error) => panic!("{error}"),
    };
    paths.into_iter().filter_map(read).collect()
}
