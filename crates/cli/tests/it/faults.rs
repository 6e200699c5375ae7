//! What goes wrong around the commands: files that end too early, death at any time, several at once.
//!
//! `STALLOC_FAULTS=SEED,COUNT cargo test -p stalloc-cli --test faults` tries more: COUNT of each kind (20 by default, seed 1).

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/demo.trace");
const SNAPSHOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/data/protocol4.pickle");

/// No command may take longer on a file of these sizes, on a machine that is busy.
const LONGEST: Duration = Duration::from_secs(60);

/// Random numbers, and how many of each kind are tried.
struct Chance(u64, usize);

impl Chance {
    fn new() -> Self {
        let asked = std::env::var("STALLOC_FAULTS").unwrap_or_else(|_| "1,20".to_owned());
        let (seed, count) = asked.split_once(',').expect("STALLOC_FAULTS=SEED,COUNT");
        Chance(seed.parse::<u64>().unwrap() ^ 0x9E37_79B9_7F4A_7C15, count.parse().unwrap())
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }
}

fn start(arguments: &[&Path]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stalloc"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Exit status and standard error of a command, which must end in time.
fn run(arguments: &[&Path]) -> (i32, String) {
    let mut child = start(arguments);
    let began = Instant::now();
    // What it writes to standard error is far less than a pipe holds.
    while child.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < LONGEST, "{arguments:?} does not end");
        sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn path(text: &str) -> &Path {
    Path::new(text)
}

/// A file of each kind that commands read, whole.
fn inputs(folder: &Path) -> Vec<PathBuf> {
    let trace = folder.join("whole.trace");
    fs::copy(TRACE, &trace).unwrap();
    let plan = folder.join("whole.plan");
    assert_eq!(run(&[path("plan"), &trace, path("-o"), &plan]).0, 0);
    let snapshot = folder.join("whole.pickle");
    fs::copy(SNAPSHOT, &snapshot).unwrap();
    let instance = folder.join("whole.csv");
    let rows: String = (0..50).map(|i| format!("{i},{},{},{}\n", i % 7, i % 7 + 1 + i % 5, 512 * (i + 1))).collect();
    fs::write(&instance, format!("id,lower,upper,size\n{rows}")).unwrap();
    let log = folder.join("whole.txt");
    let lines: String =
        (0..50).map(|i| format!("1 {:#x} {} 0x0\n", 0x1000_0000 + 0x10000 * i, 512 * (i + 1))).collect();
    fs::write(&log, lines).unwrap();
    let compressed = folder.join("whole.trace.zst");
    fs::write(&compressed, zstd::encode_all(&fs::read(&trace).unwrap()[..], 1).unwrap()).unwrap();
    vec![trace, plan, snapshot, instance, log, compressed]
}

#[test]
fn every_command_ends_with_a_line_on_files_of_every_kind_that_end_too_early() {
    let folder = tempfile::tempdir().unwrap();
    let mut chance = Chance::new();
    for whole in inputs(folder.path()) {
        let bytes = fs::read(&whole).unwrap();
        let name = whole.file_name().unwrap().to_str().unwrap().replace("whole", "cut");
        for number in 0..chance.1 {
            // The empty file first; then anything, the last bytes more often.
            let length = match number {
                0 => 0,
                1 => bytes.len() - 1,
                _ if number % 3 == 0 => bytes.len() - 1 - chance.below(bytes.len().min(64)),
                _ => chance.below(bytes.len()),
            };
            let cut = folder.path().join(&name);
            fs::write(&cut, &bytes[..length]).unwrap();
            let out = folder.path().join("out.plan");
            let command = ["info", "plan", "verify", "simulate", "report"][chance.below(5)];
            let arguments = match command {
                "plan" => vec![path("plan"), &cut, path("-o"), &out],
                command => vec![path(command), &cut],
            };
            let (status, said) = run(&arguments);
            assert!((0..=2).contains(&status), "{command} of {length} bytes of {name}: {status}\n{said}");
            assert!(!said.contains("panicked"), "{command} of {length} bytes of {name}:\n{said}");
            assert!(status == 0 || !said.is_empty(), "{command} of {length} bytes of {name} says nothing");
            if command == "plan" && status == 0 && !name.ends_with("csv") {
                assert_eq!(run(&[path("verify"), &out]).0, 0, "the plan of {length} bytes of {name}");
            }
        }
    }
}

/// Files of a folder that end like a plan.
fn plans(folder: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|extension| extension == "plan")).collect()
}

#[test]
fn a_planner_that_is_killed_leaves_the_whole_plan_or_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("rank0_dev0.plan");
    let arguments = [path("plan"), path(TRACE), path("-o"), &out, path("--work-limit"), path("1000000")];
    let began = Instant::now();
    assert_eq!(run(&arguments).0, 0);
    let whole = usize::try_from(began.elapsed().as_micros()).unwrap();
    let mut chance = Chance::new();
    for number in 0..chance.1 {
        if number % 2 == 0 {
            let _ = fs::remove_file(&out);
        }
        let before = fs::read(&out).ok();
        let mut child = start(&arguments);
        if number % 4 < 2 {
            // As soon as something is written, or a moment later.
            let began = Instant::now();
            while fs::read_dir(folder.path()).unwrap().count() == usize::from(before.is_some())
                && began.elapsed() < LONGEST
                && child.try_wait().unwrap().is_none()
            {}
            sleep(Duration::from_micros(chance.below(300) as u64));
        } else {
            sleep(Duration::from_micros(chance.below(whole * 5 / 4) as u64));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        match plans(folder.path()).as_slice() {
            [] => assert!(before.is_none(), "the plan that was there is gone"),
            [plan] => assert_eq!(run(&[path("verify"), plan, path(TRACE)]).0, 0),
            more => panic!("{more:?}"),
        }
        for left in fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).filter(|path| *path != out)
        {
            fs::remove_file(left).unwrap();
        }
    }
}

#[test]
fn several_planners_of_one_folder_leave_a_whole_plan_next_to_each_trace() {
    let folder = tempfile::tempdir().unwrap();
    for rank in 0..3 {
        fs::copy(TRACE, folder.path().join(format!("rank{rank}_dev0.trace"))).unwrap();
    }
    let planners: Vec<Child> = (0..3).map(|_| start(&[path("plan"), folder.path()])).collect();
    for planner in planners {
        let output = planner.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let made = plans(folder.path());
    assert_eq!(made.len(), 3);
    for plan in made {
        assert_eq!(run(&[path("verify"), &plan, &plan.with_extension("trace")]).0, 0);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 6, "nothing else is left");
}

#[test]
fn a_plan_that_does_not_fit_on_the_disk_is_told_and_leaves_nothing() {
    let Ok(mut full) = fs::OpenOptions::new().write(true).open("/dev/full") else { return };
    assert!(full.write_all(b"x").is_err());
    // By a link, so that whatever replaces it leaves the machine's own alone.
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("full.plan");
    std::os::unix::fs::symlink("/dev/full", &link).unwrap();
    let (status, said) = run(&[path("plan"), path(TRACE), path("-o"), &link]);
    assert_eq!(status, 2, "{said}");
    assert!(said.contains("full.plan"), "{said}");
    assert!(!link.is_file(), "what is no file stays what it is");
}
