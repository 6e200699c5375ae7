//! The one folder for what lies outside the user's own data: compiled shims, links of the dry run, `fit`'s cache, what a job's ranks
//! tell each other.
//!
//! Others may write to the places that such folders are made in (`/tmp`, a shared cache), and what lies in some of them is run. So a
//! folder is taken only if it is the user's own and only the user can write to it, everything in it is opened by the folder's descriptor
//! and never through a link, and new files are made under names that nobody has. What is run or loaded by its path also needs a path
//! that only the user and root can change ([`PrivateFolder::to_run_from`]).

use std::collections::VecDeque;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use tempfile::TempDir;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};

/// What unfinished files begin with; nothing reads them.
const UNFINISHED: &str = ".stalloc-";

/// Links that a path may lead through, as the system has it.
const MOST_LINKS: u32 = 40;

/// Why a folder is not used.
#[derive(Debug, thiserror::Error)]
pub enum NotPrivate {
    /// The folder, or one above it, can be changed by another user.
    #[error("{} {why}, so what is in it could be another user's; delete it, or set XDG_CACHE_HOME to a folder of your own", path.display())]
    Others {
        /// The folder that is at fault.
        path: PathBuf,
        /// What it is.
        why: &'static str,
    },
    /// It cannot be made or opened.
    #[error("cannot use {}: {source}; set XDG_CACHE_HOME to a folder that can be written to", path.display())]
    System {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A folder that only this user (and root) can write to, open.
#[derive(Debug)]
pub struct PrivateFolder {
    path: PathBuf,
    folder: OwnedFd,
}

impl PrivateFolder {
    /// Opens the folder, and makes it, and those above it, if it is not there.
    ///
    /// # Errors
    /// If it cannot be had, is a link, is another user's, or can be written to by others.
    pub fn open(path: &Path) -> Result<Self, NotPrivate> {
        let failed = |source: io::Error| NotPrivate::System { path: path.to_owned(), source };
        if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(above).map_err(failed)?;
        }
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        if fs::symlink_metadata(path).map_err(failed)?.is_symlink() {
            return Err(NotPrivate::Others { path: path.to_owned(), why: "is a link" });
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
        let folder = File::from(folder);
        check_own(&folder.metadata().map_err(failed)?)
            .map_err(|why| NotPrivate::Others { path: path.to_owned(), why })?;
        Ok(PrivateFolder { path: path.to_owned(), folder: folder.into() })
    }

    /// The same for a folder whose files are run or loaded by their path: nobody else may change what the path leads to.
    ///
    /// # Errors
    /// As [`PrivateFolder::open`], and if a folder on the way there is another user's, or others can write to it.
    pub fn to_run_from(path: &Path) -> Result<Self, NotPrivate> {
        let failed = |source| NotPrivate::System { path: path.to_owned(), source };
        let path = std::path::absolute(path).map_err(failed)?;
        let opened = Self::open(&path)?;
        check_way(path.parent().unwrap_or(Path::new("/")))?;
        Ok(opened)
    }

    /// The folder called `name` of what is kept between runs: in the user's cache, else among the temporary files. It can be run from.
    ///
    /// # Errors
    /// If there is none; the message is of the cache.
    pub fn kept(name: &str) -> Result<Self, NotPrivate> {
        Self::kept_where(name, |_| true)
    }

    /// The same, at a path that suits.
    pub fn kept_where(name: &str, suits: impl Fn(&Path) -> bool) -> Result<Self, NotPrivate> {
        Self::first_of(&[cache(), Some(temporary())], name, suits)
    }

    /// The folder called `name` that all of the user's processes of this machine find: among the temporary files, else in the cache.
    pub fn of_machine(name: &str) -> Result<Self, NotPrivate> {
        let [first, second] = [temporary(), cache().unwrap_or_else(temporary)].map(|folder| folder.join(name));
        Self::to_run_from(&first).or_else(|error| Self::to_run_from(&second).map_err(|_| error))
    }

    /// A new folder for what one command needs while it runs, which goes when it is dropped. It can be run from.
    ///
    /// # Errors
    /// If there is none.
    pub fn passing() -> Result<TempDir, NotPrivate> {
        let folder = Self::first_of(&[Some(temporary()), cache()], "passing", |_| true)?;
        let mut builder = tempfile::Builder::new();
        builder.prefix("").permissions(Permissions::from_mode(0o700));
        builder.tempdir_in(&folder.path).map_err(|source| NotPrivate::System { path: folder.path.clone(), source })
    }

    fn first_of(folders: &[Option<PathBuf>], name: &str, suits: impl Fn(&Path) -> bool) -> Result<Self, NotPrivate> {
        let mut first = None;
        for folder in folders.iter().flatten().map(|folder| folder.join(name)).filter(|folder| suits(folder)) {
            match Self::to_run_from(&folder) {
                Ok(opened) => return Ok(opened),
                Err(error) => first = first.or(Some(error)),
            }
        }
        // Another user has taken our name among the temporary files: one that nobody can guess is left.
        let failed = |source| NotPrivate::System { path: env::temp_dir(), source };
        let made = tempfile::Builder::new().prefix(&own_name()).tempdir_in(env::temp_dir());
        let made = made.map_err(failed).map(|made| made.keep().join(name)).and_then(|path| match suits(&path) {
            true => Self::to_run_from(&path),
            false => Err(failed(io::ErrorKind::InvalidFilename.into())),
        });
        made.map_err(|error| first.unwrap_or(error))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A folder in it.
    pub fn below(&self, name: &OsStr) -> Result<Self, NotPrivate> {
        let path = self.path.join(name);
        let failed = |source: io::Error| NotPrivate::System { path: path.clone(), source };
        check_name(name).map_err(failed)?;
        match rustix::fs::mkdirat(&self.folder, name, Mode::RWXU) {
            Err(error) if error != rustix::io::Errno::EXIST => return Err(failed(error.into())),
            _ => {}
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder =
            rustix::fs::openat(&self.folder, name, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
        let folder = File::from(folder);
        check_own(&folder.metadata().map_err(failed)?).map_err(|why| NotPrivate::Others { path: path.clone(), why })?;
        Ok(PrivateFolder { path, folder: folder.into() })
    }

    /// What a file holds; an error if it is none of ours, no plain file, or longer than `most` bytes. Waits for nobody.
    ///
    /// # Errors
    /// If any of that is so, or the system fails.
    pub fn read(&self, name: &OsStr, most: u64) -> io::Result<Vec<u8>> {
        check_name(name)?;
        let file = self.plain_file(name, OFlags::RDONLY)?;
        let mut bytes = Vec::new();
        file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 <= most {
            return Ok(bytes);
        }
        Err(io::Error::other(format!("{}: it is too long", self.path.join(name).display())))
    }

    /// Writes a file that is there as a whole or not at all; what had its name, a link too, is replaced.
    ///
    /// # Errors
    /// If `write` fails, or the system does; what was there is there still.
    pub fn write(&self, name: &OsStr, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        check_name(name)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (made, file) =
            self.under_new_name(|new| rustix::fs::openat(&self.folder, new, flags, Mode::RUSR | Mode::WUSR))?;
        let written = (|| {
            let mut out = BufWriter::new(File::from(file));
            write(&mut out)?;
            out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
            rustix::fs::renameat(&self.folder, &made, &self.folder, name)?;
            rustix::fs::fsync(&self.folder).or(Ok(()))
        })();
        if written.is_err() {
            let _ = rustix::fs::unlinkat(&self.folder, &made, AtFlags::empty());
        }
        written
    }

    /// Adds to the end of a file at once, and makes it if it is not there; an error if it is none of ours, or no plain file.
    ///
    /// # Errors
    /// If any of that is so, or the system fails.
    pub fn append(&self, name: &OsStr, bytes: &[u8]) -> io::Result<()> {
        check_name(name)?;
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE;
        self.plain_file(name, flags)?.write_all(bytes)
    }

    /// Opens a plain file of ours, and waits for nobody.
    fn plain_file(&self, name: &OsStr, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.folder, name, flags, Mode::RUSR | Mode::WUSR)?);
        let about = file.metadata()?;
        let refused = |why: &str| Err(io::Error::other(format!("{}: {why}", self.path.join(name).display())));
        match () {
            () if !about.is_file() => refused("it is no file"),
            () if !is_trusted(about.uid()) => refused("it is another user's"),
            () => Ok(file),
        }
    }

    /// Makes a link to `target`, unless it is there; what had its name is replaced, so that nobody finds it missing.
    pub fn link(&self, name: &OsStr, target: &Path) -> io::Result<()> {
        check_name(name)?;
        let there = rustix::fs::readlinkat(&self.folder, name, Vec::new());
        if there.is_ok_and(|there| there.as_bytes() == target.as_os_str().as_bytes()) {
            return Ok(());
        }
        let (made, ()) = self.under_new_name(|new| rustix::fs::symlinkat(target, &self.folder, new))?;
        rustix::fs::renameat(&self.folder, &made, &self.folder, name).map_err(|error| {
            let _ = rustix::fs::unlinkat(&self.folder, &made, AtFlags::empty());
            error.into()
        })
    }

    /// Removes a file or a link; it need not be there.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        check_name(name)?;
        match rustix::fs::unlinkat(&self.folder, name, AtFlags::empty()) {
            Err(error) if error != rustix::io::Errno::NOENT => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// The names in it, unfinished files too, with when each was last written.
    pub fn names(&self) -> io::Result<Vec<(OsString, SystemTime)>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.folder)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
            if name == "." || name == ".." {
                continue;
            }
            let Ok(about) = rustix::fs::statat(&self.folder, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let since = std::time::Duration::from_secs(u64::try_from(about.st_mtime).unwrap_or(0));
            names.push((name, SystemTime::UNIX_EPOCH + since));
        }
        Ok(names)
    }

    /// Removes the older half of what is in it where that is more than `most`: files, and folders with all that they hold.
    pub fn tidy(&self, most: usize) {
        let mut names = self.names().unwrap_or_default();
        if names.len() > most {
            names.sort_by_key(|(_, written)| *written);
            for (name, _) in &names[..names.len() / 2] {
                if self.remove(name).is_err() {
                    let _ = std::fs::remove_dir_all(self.path.join(name));
                }
            }
        }
    }

    /// Makes something under a name that nobody has.
    fn under_new_name<T>(&self, make: impl Fn(&OsStr) -> rustix::io::Result<T>) -> io::Result<(OsString, T)> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        loop {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = OsString::from(format!("{UNFINISHED}{}-{now:x}-{number}.tmp", std::process::id()));
            match make(&name) {
                Err(error) if error == rustix::io::Errno::EXIST => {}
                made => return Ok((name, made?)),
            }
        }
    }
}

impl AsFd for PrivateFolder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

/// The user's cache.
fn cache() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|folder| folder.join(".cache")));
    cache.map(|cache| cache.join("stalloc"))
}

/// Ours among the temporary files.
fn temporary() -> PathBuf {
    env::temp_dir().join(own_name())
}

fn own_name() -> String {
    format!("stalloc-{}", rustix::process::geteuid().as_raw())
}

fn check_name(name: &OsStr) -> io::Result<()> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(only)), None) if only == name => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is no name of a file"))),
    }
}

/// Who may own what we use: we, and root.
pub(crate) fn is_trusted(owner: u32) -> bool {
    owner == 0 || owner == rustix::process::geteuid().as_raw()
}

fn check_own(about: &Metadata) -> Result<(), &'static str> {
    match about.mode() {
        _ if !is_trusted(about.uid()) => Err("belongs to another user"),
        mode if mode & 0o022 != 0 => Err("can be written to by other users"),
        _ => Ok(()),
    }
}

/// Whether only we and root can change what a path leads to, one folder after the other and through its links.
fn check_way(path: &Path) -> Result<(), NotPrivate> {
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    let mut rest: VecDeque<OsString> = path.components().map(|part| part.as_os_str().to_owned()).collect();
    while let Some(part) = rest.pop_front() {
        let here = if part == ".." { at.parent().unwrap_or(&at).to_owned() } else { at.join(&part) };
        let failed = |source| NotPrivate::System { path: here.clone(), source };
        let about = fs::symlink_metadata(&here).map_err(failed)?;
        check_on_the_way(&about).map_err(|why| NotPrivate::Others { path: here.clone(), why })?;
        if about.is_symlink() {
            links += 1;
            if links > MOST_LINKS {
                return Err(failed(io::ErrorKind::InvalidInput.into()));
            }
            let target = fs::read_link(&here).map_err(failed)?;
            target.components().rev().for_each(|part| rest.push_front(part.as_os_str().to_owned()));
            continue;
        }
        at = here;
    }
    Ok(())
}

fn check_on_the_way(about: &Metadata) -> Result<(), &'static str> {
    if !is_trusted(about.uid()) && !is_unknown_here(about.uid()) {
        return Err("belongs to another user");
    }
    // Where a folder is sticky, as /tmp is, nobody can rename or remove what is another's; links have no permissions. The group of
    // the user's own number has no other members: where it is usual, folders of the user's may be written to by it.
    let group_is_own = about.gid() == rustix::process::geteuid().as_raw();
    let others = if group_is_own { 0o002 } else { 0o022 };
    let is_open = !about.is_symlink() && about.mode() & others != 0 && about.mode() & 0o1000 == 0;
    if is_open { Err("can be written to by other users") } else { Ok(()) }
}

/// Whether a number stands for owners that this container does not know: the machine's root, for what it mounts.
fn is_unknown_here(owner: u32) -> bool {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let knows_all = read("/proc/self/uid_map").split_whitespace().nth(2) == Some("4294967295");
    !knows_all && read("/proc/sys/kernel/overflowuid").trim().parse() == Ok(owner)
}

#[cfg(test)]
mod tests;
