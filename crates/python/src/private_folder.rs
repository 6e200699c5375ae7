//! The user's own folder, for Python: see [`stalloc_common::PrivateFolder`].

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use stalloc_common::PrivateFolder as Folder;

/// A folder that only this user (and root) can write to.
#[pyclass(frozen, name = "PrivateFolder")]
pub struct PyPrivateFolder(Folder);

fn failed(error: impl ToString) -> PyErr {
    PyOSError::new_err(error.to_string())
}

#[pymethods]
impl PyPrivateFolder {
    /// The folder called `name` of what is kept between runs.
    #[staticmethod]
    fn kept(name: &str) -> PyResult<Self> {
        Folder::kept(name).map(Self).map_err(failed)
    }

    /// The folder called `name` that all of the user's processes of this machine find.
    #[staticmethod]
    fn of_machine(name: &str) -> PyResult<Self> {
        Folder::of_machine(name).map(Self).map_err(failed)
    }

    /// A folder in one that may be shared with others.
    #[staticmethod]
    fn open(path: PathBuf) -> PyResult<Self> {
        Folder::open(&path).map(Self).map_err(failed)
    }

    /// A folder in it.
    fn below(&self, name: OsString) -> PyResult<Self> {
        self.0.below(&name).map(Self).map_err(failed)
    }

    /// The descriptor by which it is open.
    fn fileno(&self) -> i32 {
        self.0.as_fd().as_raw_fd()
    }

    /// Where it is.
    #[getter]
    fn path(&self) -> &Path {
        self.0.path()
    }

    /// What a file holds, at most so many bytes.
    fn read(&self, name: OsString, most: u64) -> PyResult<Vec<u8>> {
        self.0.read(&name, most).map_err(failed)
    }

    /// Writes a file, whole or not at all.
    fn write(&self, name: OsString, content: &[u8]) -> PyResult<()> {
        self.0.write(&name, |out| out.write_all(content)).map_err(failed)
    }

    /// Removes a file, if it is there.
    fn remove(&self, name: OsString) -> PyResult<()> {
        self.0.remove(&name).map_err(failed)
    }
}
