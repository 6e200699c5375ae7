//! The commands end to end, as a user calls them: demo, plan, verify, simulate.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn stalloc(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stalloc")).args(arguments).output().expect("the command starts")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("exactly one JSON object")
}

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/demo.trace");

#[test]
fn the_demo_plans_checks_compares_and_writes_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let output = stalloc(&["demo", "--out", text(folder.path())]);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}");
    for expected in ["ok: no two tensors ever share an address", "pytorch-expandable", "gmlake", "stalloc"] {
        assert!(shown.contains(expected), "{expected} is missing from\n{shown}");
    }
    assert!(fs::read_to_string(folder.path().join("report.html")).unwrap().contains("<html"));
    assert!(folder.path().join("demo.plan").exists());
}

/// Work is bounded by the length of the input, not by the sizes in it: a block of 128 TiB has 67 million pages.
#[test]
fn a_log_of_one_huge_block_is_read_by_every_command_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("mem_log_dev0.txt");
    fs::write(&log, "1 0x1e919e00 140737488355328 0x0\n").unwrap();
    let (plan, page) = (folder.path().join("huge.plan"), folder.path().join("huge.html"));
    let commands: [&[&str]; 4] = [
        &["info", text(&log)],
        &["plan", text(&log), "-o", text(&plan)],
        &["simulate", text(&log)],
        &["report", text(&log), "-o", text(&page)],
    ];
    for arguments in commands {
        let begun = Command::new(env!("CARGO_BIN_EXE_stalloc"))
            .args(arguments)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn();
        let mut child = begun.unwrap();
        // A hang is minutes or for ever; this takes under a second.
        let ended = (0..600).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            child.try_wait().unwrap().is_some()
        });
        let _ = child.kill();
        assert!(ended, "{arguments:?} hangs");
    }
}

#[test]
fn a_recording_is_planned_verified_and_simulated_with_figures_that_agree() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("demo.plan");
    let planned = json(&stalloc(&["plan", TRACE, "-o", text(&plan), "--json"]));
    assert_eq!(planned["kind"], "trace");
    assert_eq!(planned["requests"].as_u64().unwrap(), planned["static"]["requests"].as_u64().unwrap());
    assert!(planned["static"]["ratio"].as_f64().unwrap() < 1.01, "{planned}");
    assert!(planned["efficiency"].as_f64().unwrap() > 0.99, "{planned}");

    let verdict = json(&stalloc(&["verify", text(&plan), TRACE, "--json"]));
    assert_eq!(verdict["ok"], true);
    assert_eq!(verdict["peak"], planned["static"]["peak"]);

    let simulated = json(&stalloc(&["simulate", TRACE, "--plan", text(&plan), "--json"]));
    assert_eq!(simulated["peak_allocated"], planned["peak_allocated"]);
    let names: Vec<&str> =
        simulated["results"].as_array().unwrap().iter().filter_map(|r| r["allocator"].as_str()).collect();
    assert_eq!(names, ["pytorch", "pytorch-expandable", "gmlake", "stalloc-open", "stalloc", "stalloc-auto"]);
    let reserved = |i: usize| simulated["results"][i]["peak_reserved"].as_u64().unwrap();
    assert_eq!(
        reserved(0),
        simulated["actual_peak_reserved"].as_u64().unwrap(),
        "PyTorch's model against the recording"
    );
    assert!(reserved(4) < reserved(1) && reserved(4) <= reserved(3), "{simulated}");
    assert!(simulated["results"][4]["remaps"].is_u64() && simulated["results"][0]["remaps"].is_null(), "{simulated}");
}

#[test]
fn a_plan_is_described_and_refused_where_a_recording_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("demo.plan");
    let planned = json(&stalloc(&["plan", TRACE, "-o", text(&plan), "--json"]));
    let info = json(&stalloc(&["info", text(&plan), "--json"]));
    assert_eq!(info["format"], "plan");
    assert_eq!(info["arena"], planned["static"]["peak"]);
    assert_eq!(info["fingerprint"], json(&stalloc(&["info", TRACE, "--json"]))["devices"][0]["fingerprint"]);
    let sections = info["sections"].as_array().unwrap();
    assert!(sections.iter().any(|section| section["kind"] == "repeating" && section["planned"].as_u64() > Some(0)));
    assert!(stalloc(&["info", text(&plan)]).status.success());
    for command in
        [&["plan"][..], &["simulate"], &["report", "--json"], &["verify", text(&plan)], &["info", "--compare", TRACE]]
    {
        let output = stalloc(&[command, &[text(&plan)]].concat());
        assert_eq!(output.status.code(), Some(2), "{command:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("demo.plan is a plan, not a recording") && said.contains("stalloc verify"), "{said}");
    }
}

#[test]
fn a_plan_with_one_byte_changed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("demo.plan");
    assert!(stalloc(&["plan", TRACE, "-o", text(&plan)]).status.success());
    let mut bytes = fs::read(&plan).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&plan, bytes).unwrap();
    let output = stalloc(&["verify", text(&plan)]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("demo.plan"), "the message names the file");
}

#[test]
fn an_instance_keeps_its_rows_and_gets_offsets_that_verify() {
    let folder = tempfile::tempdir().unwrap();
    let (instance, solved) = (folder.path().join("in.csv"), folder.path().join("out.csv"));
    fs::write(&instance, "size,id,upper,lower\n8,c,4,0\n4,a,2,0\n4,b,6,2\n8,d,9,4\n").unwrap();
    let figures = json(&stalloc(&["plan", text(&instance), "-o", text(&solved), "--json"]));
    assert_eq!((figures["kind"].as_str(), figures["buffers"].as_u64()), (Some("dsa"), Some(4)));
    assert_eq!((figures["peak"].as_u64(), figures["lower_bound"].as_u64()), (Some(12), Some(12)));
    assert_eq!(figures["optimal"], true);
    let rows = fs::read_to_string(&solved).unwrap();
    let ids: Vec<&str> = rows.lines().map(|row| row.split(',').nth(1).unwrap()).collect();
    assert_eq!(ids, ["id", "c", "a", "b", "d"]);
    assert_eq!(json(&stalloc(&["verify", text(&solved), "--json"]))["ok"], true);

    let wrong = rows.replacen("8,c,4,0,", "8,c,4,0,1", 1);
    fs::write(&solved, wrong).unwrap();
    assert_eq!(stalloc(&["verify", text(&solved)]).status.code(), Some(1), "a moved buffer is found");
}

/// What a command names as the next one, without the program's name.
fn next(output: &Output) -> Vec<String> {
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}{}", String::from_utf8_lossy(&output.stderr));
    let last = shown.lines().last().and_then(|line| line.strip_prefix("Next: stalloc "));
    let command =
        last.and_then(|line| line.split("     (").next()).unwrap_or_else(|| panic!("nothing is named:\n{shown}"));
    command.split(' ').map(str::to_owned).collect()
}

#[test]
fn each_command_names_the_next_one_and_that_works() {
    let folder = tempfile::tempdir().unwrap();
    let instance = folder.path().join("in.csv");
    fs::write(&instance, "id,lower,upper,size\na,0,4,8\n").unwrap();
    for (first, wanted) in [
        (vec!["plan", TRACE], &["plan", "verify", "simulate", "report", "report"][..]),
        (vec!["info", TRACE], &["report", "report"]),
        (vec!["info", text(&instance)], &["plan", "verify"]),
    ] {
        let mut command: Vec<String> = first.into_iter().map(str::to_owned).collect();
        for name in wanted {
            let run = Command::new(env!("CARGO_BIN_EXE_stalloc")).args(&command).current_dir(folder.path()).output();
            command = next(&run.expect("the command starts"));
            assert_eq!(command.first().map(String::as_str), Some(*name));
        }
    }
}

#[test]
fn a_device_too_small_for_every_allocator_is_a_no() {
    let output = stalloc(&["simulate", TRACE, "--capacity", "1GiB"]);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("out of memory"));
}

#[test]
fn wrong_usage_is_told_in_a_line_with_exit_2() {
    for (arguments, expected) in [
        (vec!["simulate", TRACE, "--allocator", "jemalloc"], "jemalloc"),
        (vec!["simulate", TRACE, "--capacity", "12 parsec"], "parsec"),
        (vec!["plan", "/nonexistent.trace"], "no such file"),
        (vec!["plan", TRACE, "--device", "7"], "no device 7"),
        (vec!["plan", TRACE, "--time-limit=-1"], "seconds"),
        (vec!["plan", TRACE, "--work-limit=1", "--time-limit=1"], "cannot be used with"),
        (vec!["verify", TRACE], "recording"),
    ] {
        let output = stalloc(&arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
}

#[test]
fn a_run_plans_what_has_no_plan_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, plan) = (folder.path().join("rank0_dev0.trace"), folder.path().join("rank0_dev0.plan"));
    fs::copy(TRACE, &trace).unwrap();
    let run = || {
        let package = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/stalloc");
        let output = Command::new(env!("CARGO_BIN_EXE_stalloc"))
            .args(["run", "--plan", text(folder.path()), "--", "true"])
            .env("STALLOC_PYTHON_PACKAGE", package)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        said.contains("planned into")
    };
    assert!(run(), "there was none");
    assert!(!run(), "it is still good");
    let made = fs::read(&plan).unwrap();
    fs::write(&plan, &made[..made.len() / 2]).unwrap();
    assert!(run(), "it was damaged");
    assert_eq!(fs::read(&plan).unwrap(), made);
    // Its content says whether it was recorded again, and not its date.
    let later = plan.metadata().unwrap().modified().unwrap() + std::time::Duration::from_secs(1);
    fs::File::options().append(true).open(&trace).unwrap().set_modified(later).unwrap();
    assert!(!run(), "it is the same recording");
}

#[test]
fn a_report_that_does_not_fit_on_the_disk_leaves_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    fs::write(&page, "an earlier report").unwrap();
    // No file grows beyond 8 blocks: a full disk is not to be had everywhere.
    let script =
        format!("trap '' XFSZ; ulimit -f 8; exec {} report {TRACE} -o {}", env!("CARGO_BIN_EXE_stalloc"), text(&page));
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cannot write") && said.contains("report.html"), "{said}");
    assert_eq!(fs::read_to_string(&page).unwrap(), "an earlier report");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
}

#[test]
fn of_a_folder_a_plan_is_made_next_to_each_trace_that_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    for rank in [0, 3] {
        fs::copy(TRACE, folder.path().join(format!("rank{rank}_dev0.trace"))).unwrap();
    }
    let planned = json(&stalloc(&["plan", text(folder.path()), "--rank", "3", "--json"]));
    assert_eq!(planned["plans"].as_array().unwrap().len(), 1, "{planned}");
    assert!(folder.path().join("rank3_dev0.plan").exists() && !folder.path().join("rank0_dev0.plan").exists());
    assert!(stalloc(&["plan", text(folder.path())]).status.success());
    assert!(folder.path().join("rank0_dev0.plan").exists());
    let none = stalloc(&["plan", text(folder.path()), "--rank", "7"]);
    assert_eq!(none.status.code(), Some(2));
    // What takes one recording takes the folder, and says which rank it is.
    let simulated = stalloc(&["simulate", text(folder.path()), "--allocator", "pytorch"]);
    assert!(simulated.status.success());
    assert!(String::from_utf8_lossy(&simulated.stderr).contains("holds ranks 0, 3; this is rank 0"));
    assert!(stalloc(&["info", text(folder.path())]).status.success());
    let empty = tempfile::tempdir().unwrap();
    for command in ["plan", "info", "simulate"] {
        let output = stalloc(&[command, text(empty.path())]);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("holds no trace"), "{command}");
    }
}

#[test]
fn standard_input_and_pipes_are_inputs_of_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("solved.csv");
    fs::write(&csv, "id,lower,upper,size,offset\n0,0,5,8,0\n1,2,6,4,8\n").unwrap();
    let command = env!("CARGO_BIN_EXE_stalloc");
    for arguments in ["info --json", "plan --json", "verify --json"] {
        for input in [format!("- < {}", text(&csv)), format!("<(cat {})", text(&csv))] {
            let piped = Command::new("bash").args(["-c", &format!("{command} {arguments} {input}")]).output().unwrap();
            assert!(json(&piped).is_object());
        }
        let script = format!("cat {} | {command} {arguments} -", text(&csv));
        assert!(json(&Command::new("bash").args(["-c", &script]).output().unwrap()).is_object());
    }
}

#[test]
fn an_output_that_is_the_recording_itself_is_refused_and_the_recording_stays() {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("demo.trace");
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/demo.trace"), &recording).unwrap();
    let before = fs::read(&recording).unwrap();
    for command in ["plan", "report"] {
        let refused = stalloc(&[command, text(&recording), "-o", text(&recording)]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("would be lost"));
        assert_eq!(fs::read(&recording).unwrap(), before);
    }
}

#[test]
fn a_shell_completes_commands_options_and_values() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let output = stalloc(&["completions", shell]);
        assert!(output.status.success());
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(script.contains("simulate") && script.contains("dry-run"), "{shell}");
        fs::write(folder.path().join(shell), script).unwrap();
    }
    assert_eq!(stalloc(&["completions", "cmd"]).status.code(), Some(2));
    // What bash answers to the Tab key after the last of these words.
    let complete = |words: &[&str]| {
        let typed = format!(
            "source '{}'; COMP_WORDS=({}); COMP_CWORD={}; _stalloc stalloc '{}' ''; echo ${{COMPREPLY[@]}}",
            text(&folder.path().join("bash")),
            words.join(" "),
            words.len() - 1,
            words[words.len() - 1]
        );
        let output = Command::new("bash").args(["-c", &typed]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(complete(&["stalloc", "sim"]), "simulate");
    assert_eq!(complete(&["stalloc", "run", "--froz"]), "--frozen");
    assert_eq!(complete(&["stalloc", "completions", "z"]), "zsh");
}
