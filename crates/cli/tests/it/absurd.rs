//! Whatever an option is given, the command says yes or no in time, with little memory: no panic, no abort, no kill.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Address space that a command may take, KiB: what is absurd takes more or nothing.
const MOST_MEMORY: u32 = 4 << 20;

const ABSURD: [&str; 16] = [
    "0",
    "-1",
    "1",
    "4294967295",
    "4294967296",
    "18446744073709551615",
    "999999999999999999999999",
    "1e308",
    "-1e308",
    "nan",
    "inf",
    "",
    "\u{661}\u{662}",
    "16EiB",
    "0..18446744073709551615",
    "all",
];

/// The options of a command that take a value, with what its help says the value is.
fn options(help: &str) -> Vec<(String, String)> {
    let options = help.lines().filter_map(|line| {
        let line = line.trim_start();
        let (_, long) = line.split_once("--").filter(|(short, _)| short.is_empty() || short.ends_with(", "))?;
        let (name, value) = long.split_once(['<', '['])?;
        let name = name.trim_end_matches(['=', '[']).trim();
        name.chars().all(|c| c.is_ascii_lowercase() || c == '-').then(|| (format!("--{name}"), value.to_owned()))
    });
    options.collect()
}

fn limited(folder: &Path, arguments: &[String]) -> Output {
    let script = format!("ulimit -v {MOST_MEMORY}; exec timeout --signal=KILL 60 \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_stalloc")]).args(arguments).current_dir(folder);
    command.env("STALLOC_PYTHON_PACKAGE", concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/stalloc"));
    command.env("XDG_CACHE_HOME", folder.join("cache")).output().unwrap()
}

#[test]
fn every_option_is_given_absurd_values_and_answers_them() {
    let folder = tempfile::tempdir().unwrap();
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/demo.trace");
    fs::copy(trace, folder.path().join("a.trace")).unwrap();
    fs::write(folder.path().join("b.csv"), "id,lower,upper,size\n1,0,2,512\n2,1,3,512\n").unwrap();
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let gpu = "--dry-run h100-80gb";
    let mut commands = Vec::new();
    for (name, before, after) in [
        ("plan", "", "b.csv"),
        ("simulate", "", "a.trace --allocator pytorch"),
        ("report", "", "a.trace"),
        ("trace", "--dry-run h100-80gb -o out", "-- true"),
        ("trace", "--dry-run h100-80gb -o out --world-size 4294967295", "-- true"),
        ("run", gpu, "-- true"),
        ("fit", gpu, "-- true {N}"),
    ] {
        let help =
            fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/help/{name}.txt"))).unwrap();
        let found = options(&help);
        assert!(!found.is_empty(), "{name}");
        for (option, value) in
            found.into_iter().filter(|(option, value)| !value.contains("FILE") && !before.contains(option.as_str()))
        {
            for absurd in ABSURD {
                let given = if option == "--vary" { format!("N={absurd}") } else { absurd.to_owned() };
                let mut all = vec![name.to_owned()];
                all.extend(words(before).into_iter().filter(|word| !word.is_empty()));
                all.push(format!("{option}={given}"));
                // What it needs as well.
                all.extend(
                    words(if matches!(option.as_str(), "--rank" | "--ranks") && !before.contains("world-size") {
                        "--world-size 8"
                    } else {
                        ""
                    })
                    .into_iter()
                    .filter(|word| !word.is_empty()),
                );
                all.extend(words(after));
                commands.push((value.clone(), all));
            }
        }
    }
    assert!(commands.len() > 300, "{}", commands.len());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((_, arguments)) = commands.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let output = limited(folder.path(), arguments);
                    let said = String::from_utf8_lossy(&output.stderr);
                    let code = output.status.code();
                    assert!(
                        matches!(code, Some(0..=2)) && !said.contains("panicked"),
                        "{arguments:?} ended with {code:?}: {said}"
                    );
                }
            });
        }
    });
}

#[test]
fn more_ranks_than_any_machine_has_are_refused_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &str| {
        let words: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        let output = limited(folder.path(), &words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        said
    };
    assert!(
        refused("trace --dry-run t4 -o out --world-size 4294967295 --ranks all -- true")
            .contains("is not in 1..=1048576")
    );
    let told = refused("trace --dry-run t4 -o out --world-size 1048576 --ranks all -- true");
    assert!(told.contains("--ranks all runs at most 65,536 ranks: name some, as in --ranks 0,7"), "{told}");
    assert!(refused("fit --dry-run t4 --world-size 65536x65535 -- true").contains("number of ranks"));
}
