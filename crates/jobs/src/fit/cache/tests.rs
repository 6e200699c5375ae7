use std::fs;

use super::*;
use crate::fit::trial::{FailureKind, TrialFailure};

fn outcome() -> Outcome {
    Outcome::Failed(TrialFailure { kind: FailureKind::Refused, status: Some(2), lines: vec!["no".to_owned()] })
}

#[test]
fn an_entry_is_found_again_until_a_file_changes() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("train.py");
    fs::write(&source, "x").unwrap();
    let cache = TrialCache::new(PrivateFolder::open(&folder.path().join("cache")).ok());
    let notes = Notes { sources: Source::of(&source).map(|source| vec![source]), ..Notes::default() };
    assert_eq!(cache.get("a"), None);
    cache.put("a", &outcome(), &notes);
    assert_eq!(cache.get("a"), Some(outcome()));
    assert_eq!(cache.get("b"), None);
    fs::write(&source, "changed").unwrap();
    assert_eq!(cache.get("a"), None);
}

#[test]
fn what_nobody_knows_the_files_of_is_not_kept_and_damage_is_no_entry() {
    let folder = tempfile::tempdir().unwrap();
    let cache = TrialCache::new(PrivateFolder::open(folder.path()).ok());
    cache.put("a", &outcome(), &Notes::default());
    assert_eq!(cache.get("a"), None);
    fs::write(folder.path().join(name("a")), "{").unwrap();
    assert_eq!(cache.get("a"), None);
    let none = TrialCache::new(None);
    none.put("a", &outcome(), &Notes { sources: Some(Vec::new()), ..Notes::default() });
    assert_eq!(none.get("a"), None);
}

#[test]
fn the_cache_does_not_grow_without_end() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..=MOST_ENTRIES {
        fs::write(folder.path().join(number.to_string()), "").unwrap();
    }
    TrialCache::new(PrivateFolder::open(folder.path()).ok()).tidy();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), MOST_ENTRIES / 2 + 1);
}
