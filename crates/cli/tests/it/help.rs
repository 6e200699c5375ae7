//! What `--help` says, word for word: a change of words is seen, and written with `STALLOC_WRITE_HELP=1 cargo test -p stalloc-cli --test help`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the command prints for `arguments`, at a width that no terminal changes.
fn help(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stalloc"));
    let output = command.args(arguments).env("COLUMNS", "100").stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The names of the subcommands, as the help lists them.
fn subcommands(help: &str) -> Vec<&str> {
    let listed = help.split("\nCommands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let begins = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
    listed
        .lines()
        .filter(begins)
        .map(|line| line.split_whitespace().next().unwrap())
        .filter(|name| *name != "help")
        .collect()
}

#[test]
fn help_says_what_it_said() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    let top = help(&["--help"]);
    let names = subcommands(&top);
    assert!(names.len() > 8, "{names:?}");
    let mut said: Vec<(PathBuf, String)> =
        names.iter().map(|name| (folder.join(format!("{name}.txt")), help(&[name, "--help"]))).collect();
    said.push((folder.join("stalloc.txt"), top));
    if env::var_os("STALLOC_WRITE_HELP").is_some() {
        for (path, text) in &said {
            fs::write(path, text).unwrap();
        }
    }
    let again = "if that is meant, STALLOC_WRITE_HELP=1 cargo test -p stalloc-cli --test help";
    for (path, text) in &said {
        let before = fs::read_to_string(path).unwrap_or_default();
        let changed = text.lines().zip(before.lines()).position(|(new, old)| new != old);
        let line = changed.unwrap_or_else(|| text.lines().count().min(before.lines().count()));
        assert!(
            *text == before,
            "{} line {}: {:?}, was {:?}; {again}",
            path.display(),
            line + 1,
            text.lines().nth(line),
            before.lines().nth(line)
        );
    }
    let mut kept: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    let mut wanted: Vec<PathBuf> = said.into_iter().map(|(path, _)| path).collect();
    kept.sort();
    wanted.sort();
    assert_eq!(kept, wanted, "one file for each command");
}
