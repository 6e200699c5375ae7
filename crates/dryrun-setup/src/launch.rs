//! The environment in which a command finds the stand-in where it looks for CUDA.
//!
//! Preloading is enough for the symbols that a program links to. Programs also open `libcuda.so.1` and `libnvidia-ml.so.1` by name:
//! a directory of links with these names, first in the search path, leads them to the same library (the loader knows a file that it
//! has loaded by its inode, so there is still one copy of the state).

use crate::{Gpu, SetupError, find};
use stalloc_common::{PrivateFolder, settings};
use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The most devices that one process can have.
pub const MAX_DEVICES: u32 = 16;

const FILE: &str = "libstalloc_dryrun.so";
const LINKS: [&str; 4] = ["libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ml.so"];

/// A dry run to start: which GPU, how many of them, and the library that stands in.
#[derive(Debug, Clone)]
pub struct DryRun {
    gpu: Gpu,
    devices: u32,
    library: PathBuf,
    ample: bool,
    fewest: bool,
    context: Option<u64>,
}

impl DryRun {
    /// A dry run on `devices` GPUs of the model `gpu`.
    ///
    /// The library is the one that `STALLOC_DRYRUN_LIB` names, else `libstalloc_dryrun.so` next to the running program, in `../lib`
    /// from there, or in `deps` (where cargo leaves it when it builds tests only).
    pub fn new(gpu: &str, devices: u32) -> Result<Self, SetupError> {
        let gpu = find(gpu)?;
        if !(1..=MAX_DEVICES).contains(&devices) {
            return Err(SetupError::Devices(devices));
        }
        let library = library(env::var_os(settings::DRYRUN_LIB), env::current_exe().ok().as_deref())?;
        Ok(Self { gpu, devices, library, ample: false, fewest: false, context: None })
    }

    /// The same, with memory that does not run out: a program that needs more than the GPU has is seen to its end.
    /// What it asks about the GPU is answered as on the real one; once all of that is used, no memory is free.
    #[must_use]
    pub fn with_ample_memory(mut self) -> Self {
        self.ample = true;
        self
    }

    /// The same, with memory that does run out and so many bytes taken outside PyTorch.
    #[must_use]
    pub fn with_taken(mut self, bytes: u64) -> Self {
        (self.ample, self.context) = (false, Some(bytes));
        self
    }

    /// Whether memory does not run out.
    #[must_use]
    pub fn is_ample(&self) -> bool {
        self.ample
    }

    /// The same, with no element chosen where it is not known how many are: what depends on that is as small as it can be.
    #[must_use]
    pub fn with_fewest_chosen(mut self) -> Self {
        self.fewest = true;
        self
    }

    /// Whether that is so.
    #[must_use]
    pub fn chooses_fewest(&self) -> bool {
        self.fewest
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
    pub fn apply(&self, command: &mut Command) -> Result<(), SetupError> {
        command.envs(self.environment()?);
        Ok(())
    }

    /// The variables to set, with their values.
    pub fn environment(&self) -> Result<Vec<(&'static str, OsString)>, SetupError> {
        let folder = links(&self.library)?;
        let links = folder.path();
        let joined = |parts: [&OsStr; 2]| {
            let [first, last] = parts;
            let separator = if first.is_empty() || last.is_empty() { "" } else { ":" };
            [first, separator.as_ref(), last].into_iter().collect::<OsString>()
        };
        let first = |value: &Path, variable: &str| joined([value.as_ref(), &env::var_os(variable).unwrap_or_default()]);
        let mut variables = vec![
            (settings::DRYRUN_GPU.name, self.gpu.name.into()),
            (settings::DRYRUN_DEVICES.name, self.devices.to_string().into()),
            ("LD_PRELOAD", first(&links.join(LINKS[0]), "LD_PRELOAD")),
            ("LD_LIBRARY_PATH", first(links, "LD_LIBRARY_PATH")),
            ("TRITON_LIBCUDA_PATH", links.as_os_str().to_owned()),
        ];
        // Last, unless it has to hide the machine's own: what else the program calls is not ours to find.
        if let Some(bin) = env::current_exe().ok().and_then(|program| nvidia_smi(&folder, &program)) {
            let path = env::var_os("PATH").unwrap_or_default();
            let parts = [bin.as_os_str(), &path];
            let is_hidden = is_on_path(crate::nvidia_smi::COMMAND) || path.is_empty();
            variables.push(("PATH", if is_hidden { joined(parts) } else { joined([parts[1], parts[0]]) }));
        }
        // Where processors are shared, threads that wait awake took four fifths of a dry run's time.
        if env::var_os("OMP_WAIT_POLICY").is_none() {
            variables.push(("OMP_WAIT_POLICY", "passive".into()));
        }
        if self.ample {
            variables.push((settings::DRYRUN_AMPLE.name, "1".into()));
        }
        if let Some(bytes) = self.context {
            variables.push((settings::DRYRUN_CONTEXT_MIB.name, bytes.div_ceil(1 << 20).to_string().into()));
        }
        if self.fewest {
            variables.push((settings::DRYRUN_GUESS.name, "none".into()));
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

/// Makes a folder with `nvidia-smi` and nothing else below the links, which is our own command under that name; none where the running
/// program is another one, or the folder cannot be had: scripts that ask `nvidia-smi` find the machine's then, or none.
pub(crate) fn nvidia_smi(links: &PrivateFolder, program: &Path) -> Option<PathBuf> {
    let command = fs::canonicalize(program).ok().filter(|path| path.ends_with("stalloc"))?;
    let folder = links.below("bin".as_ref()).ok()?;
    let only = OsStr::new(crate::nvidia_smi::COMMAND);
    for (other, _) in folder.names().ok()?.iter().filter(|(name, _)| name != only) {
        folder.remove(other).ok()?;
    }
    folder.link(only, &command).ok()?;
    Some(folder.path().to_owned())
}

/// Whether a command is found in the folders of `PATH`.
fn is_on_path(command: &str) -> bool {
    env::split_paths(&env::var_os("PATH").unwrap_or_default()).any(|folder| folder.join(command).is_file())
}

/// Opens the folder of links to `library`, and makes them; several processes may do so at once. What is preloaded comes from there, so
/// that only we may write to it.
pub(crate) fn links(library: &Path) -> Result<PrivateFolder, SetupError> {
    // One folder for each library, so that two builds do not fight over the links.
    let key = stalloc_common::hash(library.as_os_str().as_encoded_bytes());
    let folder = PrivateFolder::kept_where(&format!("dryrun-{key:016x}"), has_no_separator)?;
    fill(&folder, library)?;
    Ok(folder)
}

pub(crate) fn fill(folder: &PrivateFolder, library: &Path) -> Result<(), SetupError> {
    for name in LINKS {
        let failed = |source| SetupError::Links { path: folder.path().join(name), source };
        folder.link(name.as_ref(), library).map_err(failed)?;
    }
    Ok(())
}

/// Whether the loader takes a path as one: it would run the command without the library otherwise. Paths of people's names have spaces.
pub(crate) fn has_no_separator(path: &Path) -> bool {
    !path.as_os_str().as_encoded_bytes().iter().any(|byte| b" :\n\t".contains(byte))
}
