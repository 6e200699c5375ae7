//! The side that asks: starts the process, and gives up at the first failure.

use crate::{Call, Reply};
use std::{
    io,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

/// A process that has cuDNN loaded. It is no child of this one, which a program that waits for all its children would wait for; it ends
/// when the client is gone.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
}

impl Client {
    /// Starts `command`, which serves under [`crate::COMMAND`], with the libraries of a folder.
    pub fn start(command: &Path, libraries: &Path, search: Option<std::ffi::OsString>) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let longest = Some(Duration::from_secs(crate::LONGEST_WAIT.into()));
        ours.set_read_timeout(longest)?;
        ours.set_write_timeout(longest)?;
        let mut process = Command::new(command);
        // What is preloaded here must not stand in the library's way there.
        process.arg0(crate::COMMAND).arg(libraries).env_remove("LD_PRELOAD").env_remove("LD_LIBRARY_PATH");
        if let Some(search) = search {
            process.env("LD_LIBRARY_PATH", search);
        }
        process.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        // A terminal's signals are for the program, which ends this process by going away.
        let mut child = process.process_group(0).spawn()?;
        // It leaves the serving to a child of its own.
        _ = child.wait();
        let mut client = Self { stream: ours };
        // It holds the other end too: without this nobody would see that the process ended.
        drop(process);
        // The first reply says whether the library was loaded.
        match Reply::receive(&mut client.stream)?.status {
            0 => Ok(client),
            status => Err(io::Error::other(format!("cuDNN answered {status}"))),
        }
    }

    /// One call and its answer.
    ///
    /// # Errors
    /// The process ended or does not answer: there will be no more answers.
    pub fn call(&mut self, call: &Call) -> io::Result<Reply> {
        call.send(&mut self.stream)?;
        Reply::receive(&mut self.stream)
    }
}

#[cfg(test)]
mod tests {
    use super::Client;
    use crate::Call;
    use std::{fs, os::unix::fs::PermissionsExt, path::Path};

    #[test]
    fn a_process_that_fails_is_an_error_and_no_more() {
        let nowhere = Path::new("/nowhere");
        assert!(Client::start(&nowhere.join("stalloc"), nowhere, None).is_err(), "no such command");
        assert!(Client::start(Path::new("/bin/false"), nowhere, None).is_err(), "it ends at once");
        let folder = tempfile::tempdir().unwrap();
        let script = |text: &str| {
            let path = folder.path().join("stalloc");
            fs::write(&path, format!("#!/bin/sh\nexec 3<&0\n({text}) <&3 >&3 &\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let refusing = script("printf '\\001'; head -c 19 /dev/zero");
        assert!(Client::start(&refusing, nowhere, None).is_err(), "it says that there is no library");
        let dying = script("head -c 20 /dev/zero; head -c 1 > /dev/null");
        let mut client = Client::start(&dying, nowhere, None).unwrap();
        assert!(client.call(&Call::Create { kind: 17 }).is_err(), "it ends at the first question");
    }
}
