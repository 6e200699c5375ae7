//! What the stand-in says: complaints to standard error, and what it did not imitate to where `STALLOC_DRYRUN_LOG` says.

use stalloc_common::settings;
use std::{
    collections::BTreeSet,
    fs::{File, OpenOptions},
    io::{self, Write},
    sync::{LazyLock, Mutex, PoisonError},
};

static LOG: LazyLock<Mutex<Option<File>>> = LazyLock::new(|| {
    let path = settings::DRYRUN_LOG.text().unwrap_or_default();
    let file = match path.as_str() {
        "" | "stderr" => None,
        // Several processes of one program append to the same file, each line in one piece.
        path => OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(|error| complain(&format!("{}: {path}: {error}", settings::DRYRUN_LOG)))
            .ok(),
    };
    Mutex::new(file)
});

static NOT_IMITATED: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());

/// One line on standard error.
pub fn complain(sentence: &str) {
    // Nothing can be done when standard error is closed.
    let _ = writeln!(io::stderr(), "stalloc dry run: {sentence}");
}

/// One line in the log, if there is one.
pub fn note(sentence: &str) {
    let line = format!("[{}] {sentence}\n", std::process::id());
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(file) = log.as_mut() {
        let _ = file.write_all(line.as_bytes());
    } else if settings::DRYRUN_LOG.is("stderr") {
        complain(sentence);
    }
}

/// Remembers a function that was answered without being imitated.
pub fn not_imitated(name: &'static str, how: &str) {
    NOT_IMITATED.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
    note(&format!("{name}: not imitated, {how}"));
}

/// The functions that were answered without being imitated, in order.
pub fn all_not_imitated() -> Vec<&'static str> {
    let names = NOT_IMITATED.lock().unwrap_or_else(PoisonError::into_inner);
    names.iter().copied().collect()
}
