//! What the programs of a trial say of themselves: which files they were made of, and their process groups.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use stalloc_report::TensorPlaces;

use crate::fit::outside::Groups;

/// A file that a program read, as it was then.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Source {
    /// Which.
    path: PathBuf,
    /// Its bytes.
    size: u64,
    /// When it was last written, nanoseconds since 1970.
    modified: u128,
}

impl Source {
    /// A file as it is now; none if there is none.
    pub fn of(path: &Path) -> Option<Source> {
        let about = fs::metadata(path).ok()?;
        let modified = about.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_nanos();
        Some(Source { path: path.to_owned(), size: about.len(), modified })
    }

    /// Whether it is still as it was.
    pub fn is_same(&self) -> bool {
        Source::of(&self.path).as_ref() == Some(self)
    }
}

/// What the programs of a trial noted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes {
    /// What they were made of; none where a program did not come to its end, so that nobody knows.
    pub sources: Option<Vec<Source>>,
    /// The process groups of the rank.
    pub groups: Option<Groups>,
    /// Whether a program was ended after the steps that were asked for.
    pub is_cut: bool,
}

/// A lever as a program found it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundLever {
    /// Its name.
    pub name: String,
    /// What it does to this program, in a few words.
    pub what: String,
    /// The lines of code that do it.
    pub how: String,
    /// Where they stand: `after train.py:31`, or `train.py:31` in place of it.
    pub r#where: String,
    /// What becomes of the numbers: `same`, `rounding` (sums in another order) or `change`.
    pub numerics: String,
    /// Words; levers that share one take the place of each other.
    pub group: String,
    /// Why it is not to be tried, in a sentence.
    pub why_not: Option<String>,
}

impl FoundLever {
    /// Whether the two are not applied together.
    pub fn excludes(&self, other: &FoundLever) -> bool {
        self.group.split(' ').any(|word| other.group.split(' ').any(|one| one == word))
    }
}

/// What a trial of the lever `spill` planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spill {
    /// What the job's processes are told.
    pub plan: serde_json::Value,
    /// What it does, in a few words.
    pub what: String,
}

/// What a program says of levers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeverNotes {
    /// The levers, in the order in which they are to be shown.
    pub levers: Vec<FoundLever>,
    /// The names of those that were applied.
    pub applied: Vec<String>,
    /// Floating-point operations of a step, where they were counted.
    pub flops: Option<u64>,
    /// Bytes that a step copies between the host and the device, both ways.
    pub host_bytes: Option<u64>,
    /// What tells each model that is trained from others: its parameters' names, sizes and types.
    #[serde(default)]
    pub models: Vec<String>,
    /// The plan of what is spilled, where that was tried.
    #[serde(default)]
    pub spill: Option<Spill>,
    /// Where tensors lie.
    #[serde(default, skip_serializing)]
    pub places: TensorPlaces,
}

/// What the process with a model left in a folder.
pub fn read_lever_notes(folder: &Path) -> Option<LeverNotes> {
    let files = fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "levers")).collect();
    found.sort_unstable();
    let read = |path: &PathBuf| serde_json::from_slice::<LeverNotes>(&fs::read(path).ok()?).ok();
    // A launcher and its workers write one each; only a process that trains has steps and levers to try.
    found
        .iter()
        .filter_map(read)
        .max_by_key(|notes| (notes.flops, notes.levers.iter().filter(|lever| lever.why_not.is_none()).count()))
}

/// What one process writes.
#[derive(Deserialize)]
struct Note {
    sources: Vec<PathBuf>,
    groups: Groups,
    #[serde(default)]
    is_cut: bool,
}

/// Reads what the processes of a trial left in a folder.
pub fn read_notes(folder: &Path) -> Notes {
    let files = fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let mut found = Notes::default();
    for note in files.filter_map(|path| serde_json::from_slice::<Note>(&fs::read(path).ok()?).ok()) {
        let sources = found.sources.get_or_insert_default();
        found.is_cut |= note.is_cut;
        sources.extend(note.sources.iter().filter_map(|path| Source::of(path)));
        // Of several processes the one with most groups: the others started it.
        let is_more =
            |old: &Groups| old.used.len() + old.unused.len() < note.groups.used.len() + note.groups.unused.len();
        if found.groups.as_ref().is_none_or(is_more) {
            found.groups = Some(note.groups);
        }
    }
    if let Some(sources) = &mut found.sources {
        sources.sort_unstable();
        sources.dedup();
    }
    found
}

#[cfg(test)]
mod tests;
