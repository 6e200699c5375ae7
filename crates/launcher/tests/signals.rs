//! What a request to end does to the ranks of a job.

use std::fs;
use std::path::Path;

use stalloc_launcher::{Ended, Job, Purpose, Rank, run};

fn job(directory: &Path, script: &str) -> Job {
    Job {
        purpose: Purpose::Record,
        command: ["sh", "-c", script].into_iter().collect(),
        directory: directory.to_owned(),
        solid: None,
        fit: None,
        plans: None,
        package: directory.to_owned(),
        dry_run: None,
        steps: None,
        stacks: None,
        answers: Vec::new(),
        answers_file: None,
        launch: "test".into(),
        says_progress: false,
    }
}

#[test]
fn a_request_to_end_reaches_the_ranks_that_run_and_those_that_wait_never_start() {
    let folder = tempfile::tempdir().unwrap();
    // The first rank asks us, its parent, to end, and would sleep until the test gives up.
    let script = "touch started$RANK; [ $RANK != 1 ] || kill -TERM $PPID; [ $RANK = 0 ] || exec sleep 60";
    let ranks: Vec<_> = (0..4).map(|rank| Some(Rank { rank, world_size: 4 })).collect();
    let script = format!("cd '{}'; {script}", folder.path().display());
    let ended = run(&job(folder.path(), &script), &ranks, 1, false, &mut |_, _| {}).unwrap();
    let mut codes: Vec<_> = ended.iter().map(|Ended { rank, code, .. }| (rank.unwrap().rank, *code)).collect();
    codes.sort_unstable();
    assert_eq!(codes, [(0, 0), (1, 143), (2, 143), (3, 143)]);
    let started = |rank: u32| fs::exists(folder.path().join(format!("started{rank}"))).unwrap();
    assert_eq!([0, 1, 2, 3].map(started), [true, true, false, false]);
}
