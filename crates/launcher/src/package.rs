//! Where the Python package is, which the recorded program loads.

use std::env;
use std::path::PathBuf;

use stalloc_common::settings;

use crate::Error;

/// The folder of the Python package `stalloc`, with its native part: as `STALLOC_PYTHON_PACKAGE` says, else the one
/// that the running command is installed in, else the one that `scripts/python-package` built next to it.
pub fn python_package() -> Result<PathBuf, Error> {
    let named = settings::PYTHON_PACKAGE.path();
    let program = env::current_exe().and_then(|path| path.canonicalize()).ok();
    let folder = program.as_deref().and_then(std::path::Path::parent);
    let near = folder.map(|bin| [bin.join(".."), bin.join("../python/stalloc")]).into_iter().flatten();
    named
        .into_iter()
        .chain(near)
        .find(|package| package.join("_bootstrap/sitecustomize.py").is_file())
        .and_then(|package| package.canonicalize().ok())
        .ok_or(Error::NoPackage)
}
