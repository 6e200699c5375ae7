//! A device as an allocator may use it while a CUDA graph is captured.

use stalloc_device::{Address, Backing, Device, Error, MemoryInfo, Stream};

/// Passes everything on, except for what would break a capture or take memory from a graph.
#[derive(Debug)]
pub struct Gate<D> {
    device: D,
    /// Work is being captured: nothing may be waited for and no event may be asked.
    pub capturing: bool,
    /// What is called now works on the memory of a graph, which must stay: a replay writes to it.
    pub keeping: bool,
}

impl<D> Gate<D> {
    /// An open one.
    pub fn new(device: D) -> Self {
        Gate { device, capturing: false, keeping: false }
    }

    fn check_capture(&self) -> Result<(), Error> {
        if self.capturing { Err(Error::Unsupported("wait while a graph is captured")) } else { Ok(()) }
    }

    fn check_keeping(&self) -> Result<(), Error> {
        if self.keeping { Err(Error::Unsupported("take memory from a graph")) } else { Ok(()) }
    }
}

impl<D: Device> Device for Gate<D> {
    type Event = D::Event;

    fn alloc(&mut self, bytes: u64) -> Result<Address, Error> {
        self.device.alloc(bytes)
    }

    fn free(&mut self, address: Address) -> Result<(), Error> {
        self.check_keeping()?;
        self.device.free(address)
    }

    fn page_size(&self) -> Option<u64> {
        self.device.page_size()
    }

    fn reserve(&mut self, bytes: u64) -> Result<Address, Error> {
        self.device.reserve(bytes)
    }

    fn release(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.check_keeping()?;
        self.device.release(address, bytes)
    }

    fn map(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.device.map(address, bytes)
    }

    fn alias(&mut self, from: Address, to: Address, bytes: u64) -> Result<(), Error> {
        self.device.alias(from, to, bytes)
    }

    fn map_run(&mut self, to: Address, pieces: &[Backing]) -> (usize, Result<(), Error>) {
        self.device.map_run(to, pieces)
    }

    fn unmap(&mut self, address: Address, bytes: u64) -> Result<(), Error> {
        self.check_keeping()?;
        self.device.unmap(address, bytes)
    }

    fn allow_peer(&mut self, peer: u32) -> Result<(), Error> {
        self.device.allow_peer(peer)
    }

    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        self.device.memory_info()
    }

    fn record(&mut self, stream: Stream) -> Result<Self::Event, Error> {
        self.check_capture()?;
        self.device.record(stream)
    }

    fn completed(&mut self, event: &Self::Event) -> Result<bool, Error> {
        if self.capturing { Ok(false) } else { self.device.completed(event) }
    }

    fn wait(&mut self, event: &Self::Event) -> Result<(), Error> {
        self.check_capture()?;
        self.device.wait(event)
    }

    fn queue_wait(&mut self, stream: Stream, event: &Self::Event) -> Result<(), Error> {
        self.check_capture()?;
        self.device.queue_wait(stream, event)
    }

    fn synchronize(&mut self) -> Result<(), Error> {
        self.check_capture()?;
        self.device.synchronize()
    }
}
