//! `stalloc info`: figures, exit statuses, messages.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const LOG: &str = "1 0x1000 1024 0\n1 0x2000 2048 0\n0 0x1000 1024 0\n1 0x1000 512 0x7\n";

fn stalloc(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stalloc")).args(args).output().unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn write(folder: &Path, name: &str, content: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_recording_is_summed_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "mem_log_dev5.txt", LOG);
    let output = stalloc(&["info", path.to_str().unwrap(), "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let info = json(&output);
    assert_eq!(info["format"], "mem_log");
    assert_eq!((&info["requests"], &info["events"], &info["peak_allocated"]), (&3.into(), &5.into(), &3072.into()));
    assert_eq!(info["devices"][0]["device"], 5);
    assert_eq!(info["devices"][0]["streams"], 2);
    assert!(info.get("actual_peak_reserved").is_none());
    let shown = text(&stalloc(&["info", path.to_str().unwrap()]).stdout);
    assert!(shown.contains("3.0 KiB") && shown.contains("unknown"), "{shown}");
}

#[test]
fn what_an_arena_would_reserve_is_said_with_and_without_a_plan() {
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/demo.trace");
    let device = &json(&stalloc(&["info", demo, "--json"]))["devices"][0];
    let figure = |name: &str| device["arena"][name].as_u64().unwrap();
    let peak = device["peak_allocated"].as_u64().unwrap();
    assert!(peak <= figure("planned") && figure("planned") < figure("open"), "{device}");
    // With no plan the arena holds a slack of 1/34 at least.
    assert!(figure("open") < peak + peak / 20, "{device}");
    let shown = text(&stalloc(&["info", demo]).stdout);
    let open = format!("({:.1} %) with no plan", 100.0 * peak as f64 / figure("open") as f64);
    assert!(shown.contains(&open) && shown.contains("(100.0 %) with one from this"), "{shown}");
}

#[test]
fn what_a_recording_gives_away_when_it_is_sent_to_others_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let log = write(folder.path(), "mem_log_dev5.txt", LOG);
    assert!(!text(&stalloc(&["info", log.to_str().unwrap()]).stdout).contains("gives away"), "sizes alone");
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/demo.trace");
    let shown = text(&stalloc(&["info", demo]).stdout);
    let line = shown.lines().find(|line| line.contains("sent to others, it gives away: ")).unwrap_or_default();
    assert!(line.contains("function names of call stacks"), "{shown}");
}

#[test]
fn an_instance_is_summed_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "a.csv", "id,lower,upper,size\n0,0,5,10\n1,3,9,20\n");
    let info = json(&stalloc(&["info", "--json", path.to_str().unwrap()]));
    assert_eq!((&info["buffers"], &info["lower_bound"]), (&2.into(), &30.into()));
}

#[test]
fn recordings_that_differ_are_told_by_the_exit_status() {
    let folder = tempfile::tempdir().unwrap();
    let a = write(folder.path(), "a.txt", LOG);
    let b = write(folder.path(), "b.txt", &LOG.replace("0x2000", "0x9000"));
    let c = write(folder.path(), "c.txt", &LOG.replace("2048", "4096"));
    let [a, b, c] = [&a, &b, &c].map(|path| path.to_str().unwrap());
    let same = stalloc(&["info", "--compare", a, b]);
    assert_eq!(same.status.code(), Some(0), "{}", text(&same.stdout));
    let different = stalloc(&["info", "--compare", a, c, "--json"]);
    assert_eq!(different.status.code(), Some(1));
    let info = json(&different);
    assert_eq!(info["same"], false);
    let device = &info["devices"][0];
    // Three are served and one is given back, and one of those served is another.
    assert_eq!((&device["events_a"], &device["events_b"], &device["same_events"]), (&4.into(), &4.into(), &3.into()));
    assert_eq!((&device["peak_allocated_a"], &device["peak_allocated_b"]), (&3072.into(), &5120.into()));
    let first = &info["devices"][0]["first"][0];
    assert_eq!(
        (&first["kind"], &first["a"]["size"], &first["b"]["size"]),
        (&"changed".into(), &2048.into(), &4096.into())
    );
}

/// A log of PyTorch's allocator that says nothing of the GPU but the size of one request.
fn asked_for(size: u64) -> String {
    format!("1 0x1000 1024 0\n1 0x40000000 {size} 0\n0 0x1000 1024 0\n")
}

#[test]
fn the_kind_of_gpu_is_told_by_the_workspace_that_only_some_take() {
    let folder = tempfile::tempdir().unwrap();
    for (size, class) in
        [(8_519_680, "other".into()), (8_519_681, serde_json::Value::Null), (33_554_432, serde_json::Value::Null)]
    {
        let path = write(folder.path(), "log.txt", &asked_for(size));
        let info = json(&stalloc(&["info", "--json", path.to_str().unwrap()]));
        assert_eq!(info["devices"][0]["gpu_class"], class, "{size}");
    }
}

#[test]
fn bad_input_and_usage_end_with_2_and_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let broken = write(folder.path(), "broken.txt", "1 0x1000 1024 0\n1 0x1000 -7 0\n");
    let broken = broken.to_str().unwrap();
    for (args, says) in [
        (vec!["info", broken], "broken.txt: line 2: "),
        (vec!["info", "/nowhere"], "no such file"),
        (vec!["info", "--compare", broken], "two recordings"),
        (vec!["info"], "INPUT"),
    ] {
        let output = stalloc(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty());
        assert!(text(&output.stderr).contains(says), "{args:?}: {}", text(&output.stderr));
    }
}
