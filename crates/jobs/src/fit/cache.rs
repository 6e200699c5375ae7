//! What was tried, kept for the next time: a file for each trial in the user's cache.
//!
//! An entry holds the whole of what it was asked for, and the files that the program was made of as they were then; it is used only
//! if all of that is still the same.

use std::ffi::OsStr;
use std::fmt::Write;
use std::hash::{Hash, Hasher};
use std::path::Path;

use rustc_hash::FxHasher;
use serde::{Deserialize, Serialize};
use stalloc_common::{CommandLine, PrivateFolder};

use crate::fit::notes::{Notes, Source};
use crate::fit::trial::Outcome;

/// Entries that are kept; when there are more, the older half goes.
const MOST_ENTRIES: usize = 4000;

/// Variables of the environment that change from call to call and mean nothing to a training program.
const IGNORED_VARIABLES: [&str; 18] = [
    "_",
    "SHLVL",
    "OLDPWD",
    "COLUMNS",
    "LINES",
    "TERM",
    "COLORTERM",
    "WINDOWID",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_TTY",
    "SSH_AUTH_SOCK",
    "TMUX",
    "TMUX_PANE",
    "STY",
    "PYTEST_CURRENT_TEST",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
];

/// The longest entry that is read, bytes.
const MOST_BYTES: u64 = 64 << 20;

/// Keeps outcomes of trials in a folder, for searches to come; one counts while nothing that it depends on has changed.
#[derive(Debug)]
pub struct TrialCache(Option<PrivateFolder>);

#[derive(Serialize, Deserialize)]
struct CacheEntry {
    key: String,
    sources: Vec<Source>,
    outcome: Outcome,
}

impl TrialCache {
    /// Entries in a folder; nowhere: nothing is kept.
    pub fn new(folder: Option<PrivateFolder>) -> Self {
        TrialCache(folder)
    }

    /// What came out when this was tried, if nothing has changed since.
    pub fn get(&self, key: &str) -> Option<Outcome> {
        let bytes = self.0.as_ref()?.read(name(key).as_ref(), MOST_BYTES).ok()?;
        let entry: CacheEntry = serde_json::from_slice(&bytes).ok()?;
        (entry.key == key && entry.sources.iter().all(Source::is_same)).then_some(entry.outcome)
    }

    /// Keeps what came out. Only of programs that told what they were made of; failure to write costs a trial next time.
    pub fn put(&self, key: &str, outcome: &Outcome, notes: &Notes) {
        let (Some(folder), Some(sources)) = (&self.0, &notes.sources) else { return };
        let entry = CacheEntry { key: key.to_owned(), sources: sources.clone(), outcome: outcome.clone() };
        let Ok(text) = serde_json::to_vec(&entry) else { return };
        let _ = folder.write(name(key).as_ref(), |out| out.write_all(&text));
    }

    /// Removes the older half of the entries where there are too many.
    pub fn tidy(&self) {
        self.0.iter().for_each(|folder| folder.tidy(MOST_ENTRIES));
    }
}

/// Names need only differ: the whole key is in the file.
fn name(key: &str) -> String {
    let mut hasher = FxHasher::default();
    key.hash(&mut hasher);
    let first = hasher.finish();
    key.len().hash(&mut hasher);
    key.hash(&mut hasher);
    format!("{first:016x}{:016x}.json", hasher.finish())
}

/// All that a trial's outcome depends on, but for the files that the program reads.
pub struct TrialKey<'a> {
    /// The command with its values.
    pub command: &'a CommandLine,
    /// The GPU and the library that stands in for it.
    pub dry_run: &'a stalloc_dryrun_setup::DryRun,
    /// Rank and world size.
    pub rank: Option<(u32, u32)>,
    /// Steps to record.
    pub steps: u32,
    /// What the program is told.
    pub answers: &'a [String],
    /// A file of what the program is told.
    pub answers_file: Option<&'a Path>,
    /// The levers that are applied to it.
    pub levers: Option<&'a [String]>,
    /// The size of a card on which its steps are timed.
    pub priced_on: Option<u64>,
}

impl TrialKey<'_> {
    /// The key as text.
    pub fn text(&self) -> String {
        let mut text = format!("stalloc {}\n", env!("CARGO_PKG_VERSION"));
        // Builds of one version differ: what replays, and what stands in.
        let program = std::env::current_exe().ok();
        let files = [program.as_deref(), Some(self.dry_run.library()), self.answers_file];
        for source in files.into_iter().flatten().filter_map(Source::of) {
            let _ = writeln!(text, "{source:?}");
        }
        let _ =
            writeln!(text, "{:?} {:?} {} {:?} {:?}", self.dry_run, self.rank, self.steps, self.levers, self.priced_on);
        let _ = writeln!(text, "{:?}\n{:?}\n{:?}", self.command, self.answers, std::env::current_dir().ok());
        // Secrets among them are not to lie in the cache.
        let mut variables: Vec<_> = std::env::vars_os().filter(|(name, _)| is_of_interest(name)).collect();
        variables.sort();
        let mut hasher = FxHasher::default();
        (variables, self.command.words()).hash(&mut hasher);
        let _ = writeln!(text, "all words and environment {:016x}", hasher.finish());
        text
    }
}

fn is_of_interest(name: &OsStr) -> bool {
    !IGNORED_VARIABLES.iter().any(|ignored| name == *ignored)
}

#[cfg(test)]
mod tests;
