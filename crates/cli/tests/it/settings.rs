//! The table of settings, what is printed of it, and the names that are in use.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use stalloc_common::settings::{ALL, SetBy, Setting};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn ran(arguments: &[&str]) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stalloc"));
    command.args(arguments).env("STALLOC_TIGHT", "1").env("STALLOC_TIHGT", "1");
    let output = command.output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn settings_are_printed_with_what_they_are_now_and_a_mistyped_one_is_named() {
    let (printed, said) = ran(&["--settings"]);
    assert!(printed.contains("  STALLOC_TIGHT = 1\n      1: remap rather"), "{printed}");
    for one in ALL {
        assert!(printed.contains(&format!("  {one}")), "{one}");
    }
    assert!(said.contains("STALLOC_TIHGT is no setting and changes nothing: is STALLOC_TIGHT meant?"), "{said}");
    assert!(ran(&["demo", "--help"]).1.is_empty(), "help is help");
}

#[test]
fn the_page_of_settings_is_the_table() {
    let path = root().join("docs/environment.md");
    let page = fs::read_to_string(&path).unwrap();
    let (head, rest) = page.split_once("|---|---|\n").unwrap();
    let (table, tail) = rest.split_once("\n\n").unwrap();
    let row = |one: &Setting| format!("| [`{one}`]({}) | {} |", one.page, one.says);
    let rows: Vec<String> = ALL.iter().filter(|one| one.set_by == SetBy::User).map(row).collect();
    if std::env::var_os("STALLOC_WRITE_HELP").is_some() {
        fs::write(&path, format!("{head}|---|---|\n{}\n\n{tail}", rows.join("\n"))).unwrap();
    } else {
        let again = "STALLOC_WRITE_HELP=1 cargo test -p stalloc-cli --test it settings writes it";
        assert!(table.lines().eq(rows.iter()), "{} is out of date: {again}", path.display());
    }
}

/// The sources of a kind below a folder, tests aside.
fn sources(folder: &Path, kind: &str, found: &mut Vec<(PathBuf, String)>) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() && !path.ends_with("tests") {
            sources(&path, kind, found);
        } else if path.extension().is_some_and(|it| it == kind) {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
}

#[test]
fn what_python_reads_is_in_the_table_and_rust_reads_through_it() {
    let (mut python, mut names) = (Vec::new(), BTreeSet::new());
    sources(&root().join("python/stalloc"), "py", &mut python);
    for (_, text) in &python {
        let rest = |at: usize| text[at..].chars().take_while(|one| one.is_ascii_uppercase() || *one == '_');
        names.extend(text.match_indices("STALLOC_").map(|(at, _)| rest(at).collect::<String>()));
    }
    assert!(names.len() > 20, "{names:?}");
    names.retain(|name| ALL.iter().all(|known| known.name != name));
    assert_eq!(Vec::from_iter(names), ["STALLOC_TRACE"], "the start of several names, and no other");

    let mut rust = Vec::new();
    for one in fs::read_dir(root().join("crates")).unwrap() {
        sources(&one.unwrap().path().join("src"), "rs", &mut rust);
    }
    assert!(rust.len() > 300, "{}", rust.len());
    let reads = |line: &str| line.contains("env::var") && line.contains("\"STALLOC_");
    for (path, text) in rust.iter().filter(|(path, _)| !path.ends_with("common/src/tuning.rs")) {
        assert!(!text.lines().any(reads), "{} reads a variable by its name", path.display());
    }
}
