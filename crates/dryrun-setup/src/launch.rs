//! The environment in which a command finds the stand-in where it looks for CUDA.
//!
//! Preloading is enough for the symbols that a program links to. Programs also open `libcuda.so.1` and `libnvidia-ml.so.1` by name:
//! a directory of links with these names, first in the search path, leads them to the same library (the loader knows a file that it
//! has loaded by its inode, so there is still one copy of the state).

use crate::{Gpu, SetupError, find};
use std::{
    env,
    ffi::OsString,
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt, symlink},
    path::{Path, PathBuf},
    process::{self, Command},
};

/// Names of the environment variables that the stand-in reads.
pub mod variables {
    /// Preset's name, or a description; without it the stand-in is an H100 of 80 GB.
    pub const GPU: &str = "STALLOC_DRYRUN_GPU";
    /// Number of devices, 1 when unset.
    pub const DEVICES: &str = "STALLOC_DRYRUN_DEVICES";
    /// Capacity of each device in MiB, in place of the preset's.
    pub const TOTAL_MIB: &str = "STALLOC_DRYRUN_TOTAL_MIB";
    /// `1`: memory does not run out; programs that ask still see the capacity, and no free memory once it is used up.
    pub const AMPLE: &str = "STALLOC_DRYRUN_AMPLE";
    /// Memory taken by the context in MiB, in place of the preset's.
    pub const CONTEXT_MIB: &str = "STALLOC_DRYRUN_CONTEXT_MIB";
    /// Where to write what is not imitated: a file, or `stderr`.
    pub const LOG: &str = "STALLOC_DRYRUN_LOG";
    /// A number with which events complete late, by chance, and the order of all use of memory is checked.
    pub const LATE_EVENTS: &str = "STALLOC_DRYRUN_LATE_EVENTS";
    /// Path of the shared library, in place of the search next to the program.
    pub const LIBRARY: &str = "STALLOC_DRYRUN_LIB";
}

/// The most devices that one process can have.
pub const MAX_DEVICES: u32 = 16;

/// Names of a private directory that are tried.
const TRIES: u32 = 100;

const FILE: &str = "libstalloc_dryrun.so";
const LINKS: [&str; 4] = ["libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ml.so"];

/// A dry run to start: which GPU, how many of them, and the library that stands in.
#[derive(Debug, Clone)]
pub struct DryRun {
    gpu: Gpu,
    devices: u32,
    library: PathBuf,
    ample: bool,
}

impl DryRun {
    /// A dry run on `devices` GPUs of the model `gpu`.
    ///
    /// The library is the one that `STALLOC_DRYRUN_LIB` names, else `libstalloc_dryrun.so` next to the running program, in `../lib`
    /// from there, or in `deps` (where cargo leaves it when it builds tests only).
    ///
    /// # Errors
    /// An unknown GPU, a number of devices out of range, a library that is not there.
    pub fn new(gpu: &str, devices: u32) -> Result<Self, SetupError> {
        let gpu = find(gpu)?;
        if !(1..=MAX_DEVICES).contains(&devices) {
            return Err(SetupError::Devices(devices));
        }
        let library = library(env::var_os(variables::LIBRARY), env::current_exe().ok().as_deref())?;
        Ok(Self { gpu, devices, library, ample: false })
    }

    /// The same, with memory that does not run out: a program that needs more than the GPU has is seen to its end.
    /// What it asks about the GPU is answered as on the real one; once all of that is used, no memory is free.
    #[must_use]
    pub fn with_ample_memory(mut self) -> Self {
        self.ample = true;
        self
    }

    /// The model of GPU.
    #[must_use]
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The library that stands in.
    #[must_use]
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// Lets `command` run on the stand-in: sets its environment, keeping what the current one preloads.
    ///
    /// # Errors
    /// The directory of links cannot be made.
    pub fn apply(&self, command: &mut Command) -> Result<(), SetupError> {
        command.envs(self.environment()?);
        Ok(())
    }

    /// The variables to set, with their values.
    ///
    /// # Errors
    /// The directory of links cannot be made.
    pub fn environment(&self) -> Result<Vec<(&'static str, OsString)>, SetupError> {
        let links = links_somewhere(&self.library, &cache_directory()?, &env::temp_dir())?;
        let first = |value: PathBuf, variable: &str| {
            let mut joined = value.into_os_string();
            if let Some(rest) = env::var_os(variable).filter(|rest| !rest.is_empty()) {
                joined.push(":");
                joined.push(rest);
            }
            joined
        };
        let mut variables = vec![
            (variables::GPU, self.gpu.name.into()),
            (variables::DEVICES, self.devices.to_string().into()),
            ("LD_PRELOAD", first(links.join(LINKS[0]), "LD_PRELOAD")),
            ("LD_LIBRARY_PATH", first(links.clone(), "LD_LIBRARY_PATH")),
            ("TRITON_LIBCUDA_PATH", links.clone().into_os_string()),
        ];
        if let Some(folder) = nvidia_smi(&links) {
            variables.push(("PATH", first(folder, "PATH")));
        }
        if self.ample {
            variables.push((variables::AMPLE, "1".into()));
        }
        Ok(variables)
    }
}

/// Finds the library: as named, or near the program.
pub(crate) fn library(named: Option<OsString>, program: Option<&Path>) -> Result<PathBuf, SetupError> {
    let candidates: Vec<PathBuf> = match (named, program.and_then(Path::parent)) {
        (Some(path), _) => vec![path.into()],
        (None, Some(folder)) => {
            vec![folder.join(FILE), folder.join("../lib").join(FILE), folder.join("deps").join(FILE)]
        }
        (None, None) => Vec::new(),
    };
    candidates.iter().find_map(|path| path.is_file().then(|| fs::canonicalize(path).ok())?).ok_or_else(|| {
        SetupError::LibraryMissing {
            looked_at: candidates.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "),
        }
    })
}

/// Makes a folder with `nvidia-smi` below the links, which is our own command under that name; none where the running program
/// is another one, or cannot be linked to: scripts that ask `nvidia-smi` find the machine's then, or none.
fn nvidia_smi(links: &Path) -> Option<PathBuf> {
    let command = env::current_exe().and_then(fs::canonicalize).ok().filter(|path| path.ends_with("stalloc"))?;
    let folder = links.join("bin");
    fs::create_dir_all(&folder).ok()?;
    link(&command, &folder, crate::nvidia_smi::COMMAND).ok()?;
    Some(folder)
}

/// The folder for what we keep between runs: the user's cache, else a private folder among the temporary files.
///
/// # Errors
/// If there is no such folder and none can be made.
pub fn cache_directory() -> Result<PathBuf, SetupError> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute()).or_else(|| {
        let home = env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        home.map(|home| home.join(".cache"))
    });
    cache.map_or_else(|| private_directory(&env::temp_dir()), |cache| Ok(cache.join("stalloc")))
}

/// A directory of ours in one that everybody may write to. What is preloaded comes from there, so that one which another
/// user made, or may write to, is not taken.
pub(crate) fn private_directory(shared: &Path) -> Result<PathBuf, SetupError> {
    let failed = |path: &Path, source| SetupError::Links { path: path.to_owned(), source };
    // The owner of our process's entry is who we are.
    let user = fs::metadata("/proc/self").map_err(|source| failed("/proc/self".as_ref(), source))?.uid();
    let usual = shared.join(format!("stalloc-{user}"));
    let others = (0..TRIES).map(|number| shared.join(format!("stalloc-{user}-{}-{number}", process::id())));
    for path in std::iter::once(usual).chain(others) {
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let is_ours = |about: fs::Metadata| about.is_dir() && about.uid() == user && about.mode() & 0o022 == 0;
                if fs::symlink_metadata(&path).is_ok_and(is_ours) {
                    return Ok(path);
                }
            }
            Err(error) => return Err(failed(&path, error)),
        }
    }
    Err(failed(shared, io::ErrorKind::AlreadyExists.into()))
}

/// Makes the directory of links under `cache`, else in a private one of `shared`: some containers have a cache that nobody may write to,
/// and paths of people's names have spaces.
pub(crate) fn links_somewhere(library: &Path, cache: &Path, shared: &Path) -> Result<PathBuf, SetupError> {
    links(library, cache).or_else(|error| {
        let instead = private_directory(shared).and_then(|private| links(library, &private));
        instead.map_err(|_| error)
    })
}

/// Makes the directory of links to `library` under `cache`; several processes may do so at once.
pub(crate) fn links(library: &Path, cache: &Path) -> Result<PathBuf, SetupError> {
    // One directory for each library, so that two builds do not fight over the links. FNV-1a: only distinctness matters.
    let key = library
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    let directory = cache.join(format!("dryrun-{key:016x}"));
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| SetupError::Links { path, source }
    };
    // The loader takes these for the end of a path, and would run the command without the library.
    let path = directory.as_os_str().as_encoded_bytes();
    if path.iter().any(|byte| b" :\n\t".contains(byte)) {
        return Err(SetupError::Separator(directory));
    }
    fs::create_dir_all(&directory).map_err(failed(&directory))?;
    for name in LINKS {
        link(library, &directory, name).map_err(failed(&directory.join(name)))?;
    }
    Ok(directory)
}

/// Makes the link `name` to `target` in `directory`, unless it is there.
fn link(target: &Path, directory: &Path, name: &str) -> io::Result<()> {
    let link = directory.join(name);
    if fs::read_link(&link).is_ok_and(|existing| existing == target) {
        return Ok(());
    }
    // Made under another name and renamed, so that another process never finds it missing; whatever was there is replaced.
    stalloc_common::replace(&link, |made| symlink(target, made))
}
