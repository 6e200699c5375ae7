//! Functions by name, as programs ask for those that their headers know and an older driver may not have.

use crate::{
    errors::{NOT_FOUND, SUCCESS, Status},
    ffi::{Out, Text},
    log,
    runtime_api::{end as end_runtime, runtime_version},
    stubs::is_stub,
};
use std::ffi::{CString, c_int, c_uint};

/// `CU_GET_PROC_ADDRESS_SUCCESS` and `..._SYMBOL_NOT_FOUND`; the runtime's numbers are the same.
const FOUND: c_int = 0;
const ABSENT: c_int = 1;

/// The address of a function of the driver. A name without a version means the newest that is imitated.
fn find(name: &str, version: c_int) -> Option<usize> {
    // Its own second version has one more argument, which callers from before version 12 do not pass.
    if name == "cuGetProcAddress" && version < 12_000 {
        return address(name);
    }
    // Both names are asked for in ways that expect the function itself, not a version of it.
    let versions = ["_v4", "_v3", "_v2", ""].map(|version| format!("{name}{version}"));
    let imitated = versions.iter().find(|name| !is_stub(name) && address(name).is_some());
    let any = imitated.or_else(|| versions.iter().rev().find(|name| address(name).is_some()))?;
    address(any)
}

/// The address of an exported function.
fn address(name: &str) -> Option<usize> {
    if !name.starts_with("cu") {
        return None;
    }
    let name = CString::new(name).ok()?;
    // SAFETY: the name ends with zero. The stand-in is preloaded, so its symbols are the first ones found.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!symbol.is_null()).then(|| symbol.addr())
}

fn entry(name: Text, version: c_int, place: Out<usize>, result: Out<c_int>) -> Result<(), Status> {
    match find(name.get(), version) {
        Some(address) => {
            place.set(address);
            result.set(FOUND);
            Ok(())
        }
        None => {
            log::note(&format!("{}: no such function in the stand-in driver", name.get()));
            place.set(0);
            result.set(ABSENT);
            Err(NOT_FOUND)
        }
    }
}

exports! {
    fn cuGetProcAddress(name: Text, place: Out<usize>, version: c_int, _flags: u64) -> Status {
        find(name.get(), version).map_or(NOT_FOUND, |address| {
            place.set(address);
            SUCCESS
        })
    }

    fn cuGetProcAddress_v2(name: Text, place: Out<usize>, version: c_int, _flags: u64, result: Out<c_int>) -> Status {
        super::end(entry(name, version, place, result))
    }

    // Before version 12 there is no fourth argument.
    fn cudaGetDriverEntryPoint(name: Text, place: Out<usize>, _flags: u64, result: Out<c_int>) -> Status {
        if crate::execution::cuda_major() >= 12 {
            result.set(if find(name.get(), 12_000).is_some() { FOUND } else { ABSENT });
        }
        place.set(find(name.get(), runtime_version()).unwrap_or(0));
        SUCCESS
    }

    // The runtime says by the result that there is no such function, and calls that a success.
    fn cudaGetDriverEntryPointByVersion(name: Text, place: Out<usize>, version: c_uint, _flags: u64, result: Out<c_int>) -> Status {
        end_runtime(entry(name, version.cast_signed(), place, result).or(Ok(())))
    }
}
