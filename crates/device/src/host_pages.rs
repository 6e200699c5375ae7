//! Host memory with pages that come and go behind its addresses, as a GPU's do: real bytes, and an access where no page is ends the process.

use std::collections::BTreeMap;
use std::ptr;

use crate::{Address, Counting, Device, Error, MemoryInfo, Stream};

/// Host memory at the addresses that [`Counting`] hands out, which also refuses what a driver refuses. The CPU works in program order, so
/// events complete at once, and copies are made when they are queued.
#[derive(Debug)]
pub struct HostPages {
    counting: Counting,
    reserved: BTreeMap<Address, u64>,
    /// What may be read and written: mapped pages, and memory to copy to.
    used: BTreeMap<Address, u64>,
}

impl HostPages {
    /// A device of this many bytes. A process can use one.
    pub fn new(capacity: u64) -> Self {
        HostPages { counting: Counting::new(capacity), reserved: BTreeMap::new(), used: BTreeMap::new() }
    }

    fn is_used(&self, address: Address, bytes: u64) -> bool {
        let (mut at, end) = (address, address.saturating_add(bytes));
        while at < end {
            match self.used.range(..=at).next_back() {
                Some((&start, &length)) if start + length > at => at = start + length,
                _ => return false,
            }
        }
        true
    }
}

/// Has the operating system put new, empty pages at an address, or anywhere at 0.
fn pages(address: Address, bytes: u64, protection: i32, fixed: i32) -> Result<Address, Error> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    let place = ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: anonymous memory, where nothing is, or in a range of ours that nobody uses now.
    let got = unsafe { libc::mmap(place, bytes as usize, protection, flags, -1, 0) };
    if got == libc::MAP_FAILED || (fixed != 0 && got != place) {
        return Err(Error::Driver { call: "mmap", message: std::io::Error::last_os_error().to_string() });
    }
    Ok(got.expose_provenance() as Address)
}

const USED: i32 = libc::PROT_READ | libc::PROT_WRITE;

fn give_back(address: Address, bytes: u64) {
    // SAFETY: the caller owns the range and has no more use for it.
    unsafe { libc::munmap(ptr::with_exposed_provenance_mut(address as usize), bytes as usize) };
}

impl Device for HostPages {
    type Event = ();

    fn alloc(&mut self, _bytes: u64) -> Result<Address, Error> {
        Err(Error::Unsupported("take memory without pages"))
    }

    fn free(&mut self, _address: Address) -> Result<(), Error> {
        Err(Error::Unsupported("free what it did not hand out"))
    }

    fn page_size(&self) -> Option<u64> {
        self.counting.page_size()
    }

    fn reserve(&mut self, bytes: u64) -> Result<Address, Error> {
        let address = self.counting.reserve(bytes)?;
        pages(address, bytes, libc::PROT_NONE, libc::MAP_FIXED_NOREPLACE)?;
        self.reserved.insert(address, bytes);
        Ok(address)
    }

    fn release(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.counting.release(address, bytes)?;
        self.reserved.remove(&address);
        give_back(address, bytes);
        Ok(())
    }

    fn map(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.counting.map(address, bytes)?;
        pages(address, bytes, USED, libc::MAP_FIXED)?;
        self.used.insert(address, bytes);
        Ok(())
    }

    fn unmap(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.counting.unmap(address, bytes)?;
        self.used.retain(|at, _| !(address..address + bytes).contains(at));
        pages(address, bytes, libc::PROT_NONE, libc::MAP_FIXED).map(drop)
    }

    fn alloc_host(&mut self, bytes: u64) -> Result<Address, Error> {
        let refused = |_| Error::HostMemory { requested: bytes, available: 0 };
        let address = pages(0, bytes.max(1), USED, 0).map_err(refused)?;
        self.used.insert(address, bytes.max(1));
        Ok(address)
    }

    fn free_host(&mut self, address: Address) -> Result<(), Error> {
        let bytes = self.used.remove(&address).ok_or(Error::Unsupported("free what it did not hand out"))?;
        give_back(address, bytes);
        Ok(())
    }

    fn copy(&mut self, to: Address, from: Address, bytes: u64, _lane: usize) -> Result<(), Error> {
        if !self.is_used(to, bytes) || !self.is_used(from, bytes) {
            return Err(Error::Unsupported("copy what is not mapped"));
        }
        let to = ptr::with_exposed_provenance_mut::<u8>(to as usize);
        // SAFETY: all of both ranges are pages of ours; nobody else uses them until the device has been waited for.
        unsafe { ptr::copy(ptr::with_exposed_provenance(from as usize), to, bytes as usize) };
        Ok(())
    }

    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        self.counting.memory_info()
    }

    crate::done_at_once!();
}

impl Drop for HostPages {
    fn drop(&mut self) {
        self.reserved.iter().for_each(|(&start, &bytes)| give_back(start, bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 2 << 20;

    #[test]
    fn pages_hold_bytes_while_they_are_mapped_and_come_back_empty() -> Result<(), Error> {
        let mut device = HostPages::new(8 * PAGE);
        let base = device.reserve(8 * PAGE)?;
        device.map(base + PAGE, 2 * PAGE)?;
        let byte = ptr::with_exposed_provenance_mut::<u8>((base + 2 * PAGE) as usize);
        // SAFETY: it is in a page that was just mapped.
        unsafe { byte.write(7) };
        let host = device.alloc_host(2 * PAGE)?;
        device.copy(host, base + PAGE, 2 * PAGE, 0)?;
        device.unmap(base + PAGE, 2 * PAGE)?;
        assert!(device.copy(host, base + PAGE, 2 * PAGE, 0).is_err() && device.unmap(base, PAGE).is_err());
        device.map(base + PAGE, PAGE)?;
        device.map(base + 2 * PAGE, PAGE)?;
        // SAFETY: as above.
        assert_eq!(unsafe { byte.read() }, 0);
        device.copy(base + PAGE, host, 2 * PAGE, 1)?;
        // SAFETY: as above.
        assert_eq!(unsafe { byte.read() }, 7);
        device.free_host(host)
    }
}
