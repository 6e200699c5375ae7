//! The folder that a launch records into.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::Error;

/// Makes `directory` and sees that it can be written to; what it holds stays. Returns a name of this launch that no other
/// has: the moment by the file system's clock, so that what is older is known by it, and of this process.
pub fn prepare(directory: &Path) -> Result<String, Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Directory { path, source }
    };
    fs::create_dir_all(directory).map_err(failed(directory))?;
    // Other machines may have a process of our number.
    let nanoseconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let own = format!("{}-{:x}", std::process::id(), nanoseconds(SystemTime::now()));
    let probe = directory.join(format!(".stalloc-{own}"));
    let written = fs::File::create_new(&probe).and_then(|probe| probe.metadata()?.modified());
    let removed = fs::remove_file(&probe);
    let started = written.and_then(|time| removed.map(|()| time)).map_err(failed(directory))?;
    Ok(format!("{:x}-{own}", nanoseconds(started)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_launch_has_a_name_of_its_own_and_leaves_the_folder_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("notes.txt"), b"x").unwrap();
        let launch = prepare(directory.path()).unwrap();
        assert_ne!(launch, prepare(directory.path()).unwrap());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_in_the_place_of_the_directory_is_an_error_that_names_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, b"").unwrap();
        let message = prepare(&file.join("below")).unwrap_err().to_string();
        assert!(message.starts_with(&format!("cannot write to {}", file.display())), "{message}");
    }
}
