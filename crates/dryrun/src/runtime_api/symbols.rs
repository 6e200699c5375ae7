//! Variables of device code, seen from the host: each has an address, nobody its content.

use super::{
    end,
    memory::{allocate, copy_now, copy_on},
};
use crate::{
    errors::{INVALID_VALUE, Status},
    execution::Handle,
    ffi::Out,
    memory::plain,
};
use std::{
    collections::HashMap,
    ffi::c_int,
    sync::{Mutex, PoisonError},
};

/// Room for each variable, in bytes; its size is in the device code, which is not read.
const ROOM: usize = 64 << 10;

/// Device addresses of the variables that were asked for.
static ADDRESSES: Mutex<Option<HashMap<usize, u64>>> = Mutex::new(None);

fn address(symbol: usize) -> Result<u64, Status> {
    let mut addresses = ADDRESSES.lock().unwrap_or_else(PoisonError::into_inner);
    let addresses = addresses.get_or_insert_default();
    if let Some(address) = addresses.get(&symbol) {
        return Ok(*address);
    }
    let address = allocate(ROOM)?;
    addresses.insert(symbol, address);
    Ok(address)
}

/// The address of `bytes` at `offset` in a variable.
fn part(symbol: usize, bytes: usize, offset: usize) -> Result<u64, Status> {
    let end = offset.checked_add(bytes).filter(|end| *end <= ROOM);
    end.ok_or(INVALID_VALUE)?;
    Ok(address(symbol)? + offset as u64)
}

exports! {
    fn cudaGetSymbolAddress(place: Out<u64>, symbol: usize) -> Status {
        end(address(symbol).map(|address| place.set(address)))
    }

    fn cudaGetSymbolSize(size: Out<usize>, _symbol: usize) -> Status {
        size.set(ROOM);
        0
    }

    fn cudaMemcpyToSymbol(symbol: usize, from: u64, bytes: usize, offset: usize, _kind: c_int) -> Status {
        end(part(symbol, bytes, offset).and_then(|to| copy_now(plain(to, from, bytes))))
    }

    fn cudaMemcpyToSymbolAsync(symbol: usize, from: u64, bytes: usize, offset: usize, _kind: c_int, stream: Handle) -> Status {
        end(part(symbol, bytes, offset).and_then(|to| copy_on(stream, plain(to, from, bytes))))
    }

    fn cudaMemcpyFromSymbol(to: u64, symbol: usize, bytes: usize, offset: usize, _kind: c_int) -> Status {
        end(part(symbol, bytes, offset).and_then(|from| copy_now(plain(to, from, bytes))))
    }
}
