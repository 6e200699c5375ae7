//! A process that learns is killed at any moment: what it kept is a whole plan or none, and the next one starts from it.
//! `STALLOC_KILLS` says how often (10).
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use stalloc_plan::Plan;
use stalloc_runtime::{HOST, free, keep_in, learn, prepare, serve, step_begin};

/// Names the folder to a process that is to be killed.
const FOLDER: &str = "STALLOC_KILLED_IN";

/// Trains for ever, in steps of two kinds, so that there is more and more to keep.
fn train(folder: &Path) -> ! {
    let plan = folder.join("rank0_dev-1.plan");
    let plan = if plan.exists() { stalloc_plan::read(&plan).unwrap() } else { Plan::default() };
    keep_in(folder, 0);
    learn();
    assert!(prepare(HOST, plan));
    for step in 0_u64.. {
        step_begin();
        let requests = 30 + step / 40;
        let held: Vec<u64> = (1..requests).filter_map(|n| Some(serve(HOST, n * 5_000, 0)?.address)).collect();
        held.into_iter().for_each(|address| assert!(free(address).is_some()));
        std::thread::sleep(Duration::from_millis(1));
    }
    unreachable!()
}

#[test]
fn a_process_that_is_killed_while_it_learns_leaves_a_whole_plan_or_none() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        train(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let times: u64 = std::env::var("STALLOC_KILLS").ok().and_then(|times| times.parse().ok()).unwrap_or(10);
    let (mut whole, mut chance) = (0, 0x2545_f491_4f6c_dd1d_u64);
    for time in 0..times {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.env(FOLDER, folder.path()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        // Now and then until a plan is there, so that there is one to be replaced.
        let patience = if time % 5 == 0 { 60_000 } else { chance % 400 };
        let plan = folder.path().join("rank0_dev-1.plan");
        if time % 5 == 0 {
            let _ = fs::remove_file(&plan);
        }
        for _ in 0..patience {
            if time % 5 == 0 && plan.exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(
            child.try_wait().unwrap().is_none(),
            "it starts from whatever the one before left: {:?}",
            child.wait_with_output()
        );
        child.kill().unwrap();
        child.wait().unwrap();
        if plan.exists() {
            assert!(stalloc_plan::read(&plan).unwrap().check().ok, "kill {time}");
            whole += 1;
        }
    }
    assert!(whole * 5 >= times, "{whole} of {times} times there was a plan");
}
