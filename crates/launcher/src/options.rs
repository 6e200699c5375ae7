//! What the processes of a launch are told, in a file: the environment has room for its name whatever the command line holds.

use std::path::PathBuf;

use serde_json::{Map, Value, json};
use stalloc_common::PrivateFolder;

use crate::{Error, Job, Purpose};

/// Files of launches that nobody waits for, at most; when there are more, the older half goes.
const MOST_FILES: usize = 200;

/// Writes what there is to tell; none: nothing is. The recorder's lies with the recording, which all machines of a job see.
pub fn write(job: &Job) -> Result<Option<PathBuf>, Error> {
    let told = told(job);
    if told.is_empty() {
        return Ok(None);
    }
    let text = Value::from(told).to_string();
    if job.purpose == Purpose::Record {
        let path = job.directory.join(format!(".launch-{}.json", job.launch));
        let failed = |source| Error::Directory { path: path.clone(), source };
        stalloc_common::whole_file(&path, |out| out.write_all(text.as_bytes())).map_err(failed)?;
        return Ok(Some(path));
    }
    let folder = PrivateFolder::kept("launches").map_err(|error| Error::DryRun(error.into()))?;
    folder.tidy(MOST_FILES);
    // The command replaces this process, so that nothing is left to remove it; the same text has the same name.
    let name = format!("{:016x}.json", stalloc_common::hash(text.as_bytes()));
    let failed = |source| Error::Directory { path: folder.path().join(&name), source };
    folder.write(name.as_ref(), |out| out.write_all(text.as_bytes())).map_err(failed)?;
    Ok(Some(folder.path().join(&name)))
}

/// Removes the file of a recording that has ended.
pub fn remove(job: &Job) {
    let _ = std::fs::remove_file(job.directory.join(format!(".launch-{}.json", job.launch)));
}

fn told(job: &Job) -> Map<String, Value> {
    let mut told = Map::new();
    if job.purpose == Purpose::Record {
        told.insert("command".into(), job.command.to_string().into());
    }
    if !job.answers.is_empty() {
        told.insert("answers".into(), json!(job.answers));
    }
    if let Some(file) = &job.answers_file {
        told.insert("answers_file".into(), file.to_string_lossy().into());
    }
    for (name, number) in [("steps", job.steps), ("stacks", job.stacks)] {
        if let Some(number) = number {
            told.insert(name.into(), number.into());
        }
    }
    if job.says_progress {
        told.insert("progress".into(), true.into());
    }
    told
}

#[cfg(test)]
mod tests;
