use super::*;

fn job(purpose: Purpose, directory: PathBuf) -> Job {
    Job {
        purpose,
        command: ["python", "train.py", "--token", "secret"].into_iter().collect(),
        directory,
        plans: None,
        solid: None,
        fit: None,
        package: PathBuf::new(),
        dry_run: None,
        steps: None,
        stacks: None,
        answers: Vec::new(),
        answers_file: None,
        launch: "1".to_owned(),
        says_progress: false,
    }
}

#[test]
fn the_environment_holds_no_more_than_names_whatever_the_command_and_the_answers_are() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = job(Purpose::Record, folder.path().to_owned());
    let more = (0..25_000).map(|number| format!("--argument-{number}").into());
    recorded.command = recorded.command.words().iter().cloned().chain(more).collect();
    recorded.answers = (0..25_000).map(|line| format!("train.py:{line}=1")).collect();
    let process = recorded.process(None).unwrap();
    let values: usize = process.get_envs().filter_map(|(_, value)| Some(value?.len())).sum();
    let own = std::env::var_os("PYTHONPATH").map_or(0, |path| path.len());
    assert!(values < own + 2000, "{values}");
    let file = write(&recorded).unwrap().unwrap();
    let told: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(told["answers"].as_array().unwrap().len(), 25_000);
    assert!(told["command"].as_str().unwrap().starts_with("python train.py --token *** --argument-0 "));
    remove(&recorded);
    assert!(!file.exists());
}

#[test]
fn a_served_command_is_told_nothing_that_it_need_not_know() {
    assert_eq!(write(&job(Purpose::Serve, PathBuf::new())).unwrap(), None);
}
