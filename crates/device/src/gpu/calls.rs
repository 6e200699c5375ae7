//! The driver's calls as functions that return a `Result`, each on its device.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::sys::{
    AccessDescription, AllocationProperties, Binding, Code, DESCRIPTOR, Driver, EVENT_DISABLE_TIMING, EXPORTS_PAGES,
    HostMemory, Location, MAPS_PAGES, NON_BLOCKING, NOT_READY, OUT_OF_MEMORY, RDMA_OF_PAGES, READ_WRITE, RELAXED,
    Virtual,
};
use crate::{Address, Error, MemoryInfo, Stream};

/// A handle of memory that can be mapped.
pub type MemoryHandle = u64;

/// Why a call that takes memory failed.
pub enum Failure {
    /// The device has no memory left.
    OutOfMemory,
    /// Anything else.
    Other(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Other(error)
    }
}

/// A driver and the device that its calls are for.
pub struct Calls {
    driver: Driver,
    device: c_int,
    /// The primary context, where there are contexts.
    context: *mut c_void,
    /// Memory is created so that other processes may get a descriptor of it.
    is_exportable: AtomicBool,
    /// Memory is created so that network cards may read and write it.
    is_for_rdma: AtomicBool,
    /// Streams for copies to and from the host, made when they are first used; 0 before.
    lanes: [AtomicU64; LANES],
    /// Events that nobody uses: making one costs more than recording it.
    idle_events: Mutex<Vec<*mut c_void>>,
}

/// Two, so that the next copy is with the device when one ends.
const LANES: usize = 2;

/// Events that are kept for later, at most.
const IDLE_EVENTS: usize = 256;

/// Where the driver says that there is no memory although so many bytes more than asked for are free, the reason is another one.
const ROOM: u64 = 256 << 20;

// SAFETY: drivers may be called by any thread; each call here makes its device current on the calling thread.
unsafe impl Send for Calls {}
// SAFETY: as above; nothing here changes after it is made, but for two flags, which are atomic, and a list behind a lock.
unsafe impl Sync for Calls {}

impl fmt::Debug for Calls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Calls").field("device", &self.device).finish_non_exhaustive()
    }
}

/// The thread's device is the right one while this lives.
struct CurrentDevice<'a> {
    calls: &'a Calls,
    before: c_int,
}

impl Drop for CurrentDevice<'_> {
    fn drop(&mut self) {
        match &self.calls.driver.binding {
            Binding::Contexts(contexts) => {
                let mut context = ptr::null_mut();
                // SAFETY: pops what `CurrentDevice` pushed.
                unsafe { (contexts.pop)(&mut context) };
            }
            // SAFETY: sets the device that was the thread's before.
            Binding::Current(current) => unsafe {
                (current.set)(self.before);
            },
        }
    }
}

/// While this lives, the thread may take and give back memory although a graph is being captured.
struct Relaxed<'a> {
    calls: &'a Calls,
    before: c_int,
    _current: CurrentDevice<'a>,
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        // SAFETY: `before` is the mode that the driver named, and a place for its answer.
        unsafe { (self.calls.driver.basic.exchange_capture_mode)(&mut self.before) };
    }
}

impl Calls {
    /// Starts the driver and finds a device.
    pub fn new(driver: Driver, ordinal: u32) -> Result<Self, Error> {
        let no_device = |_| Error::Driver { call: "opening the device", message: format!("no device {ordinal}") };
        let ordinal = c_int::try_from(ordinal).map_err(no_device)?;
        let (is_exportable, is_for_rdma) = (AtomicBool::new(false), AtomicBool::new(false));
        let (context, idle_events) = (ptr::null_mut(), Mutex::new(Vec::new()));
        let mut calls =
            Calls { driver, device: 0, context, is_exportable, is_for_rdma, lanes: Default::default(), idle_events };
        // SAFETY: the flags must be 0.
        calls.check("starting the driver", unsafe { (calls.driver.basic.init)(0) })?;
        let device = calls.find(ordinal)?;
        if let Binding::Contexts(contexts) = &calls.driver.binding {
            let mut context = ptr::null_mut();
            // SAFETY: `context` is a place for the answer; it is released when `Calls` is dropped.
            calls.check("opening the device", unsafe { (contexts.retain)(&mut context, device) })?;
            calls.context = context;
        }
        calls.device = device;
        // HIP's number of the attribute differs between versions: not there.
        let exports = calls.driver.sharing.is_some() && calls.has(EXPORTS_PAGES).unwrap_or(false);
        calls.is_exportable = AtomicBool::new(exports);
        calls.is_for_rdma = AtomicBool::new(calls.has(RDMA_OF_PAGES).unwrap_or(false));
        Ok(calls)
    }

    fn find(&self, ordinal: c_int) -> Result<c_int, Error> {
        let mut device = 0;
        // SAFETY: `device` is a place for the answer.
        self.check("finding the device", unsafe { (self.driver.basic.device_get)(&mut device, ordinal) })?;
        Ok(device)
    }

    /// Another device of the machine, by its ordinal, as the driver knows it.
    pub fn peer(&self, ordinal: u32) -> Result<c_int, Error> {
        self.find(c_int::try_from(ordinal).unwrap_or(c_int::MAX))
    }

    fn check(&self, call: &'static str, code: Code) -> Result<(), Error> {
        if code == 0 { Ok(()) } else { Err(Error::Driver { call, message: self.driver.message(code) }) }
    }

    fn check_memory(&self, call: &'static str, code: Code) -> Result<(), Failure> {
        if code == OUT_OF_MEMORY { Err(Failure::OutOfMemory) } else { Ok(self.check(call, code)?) }
    }

    /// Makes the device the thread's, until the answer is dropped.
    fn current(&self) -> Result<CurrentDevice<'_>, Error> {
        let mut before = 0;
        match &self.driver.binding {
            Binding::Contexts(contexts) => {
                // SAFETY: the context is retained as long as `self` lives.
                self.check("choosing the device", unsafe { (contexts.push)(self.context) })?;
            }
            Binding::Current(current) => {
                // SAFETY: `before` is a place for the answer.
                self.check("asking for the device", unsafe { (current.get)(&mut before) })?;
                // SAFETY: the device was found when `self` was made.
                self.check("choosing the device", unsafe { (current.set)(self.device) })?;
            }
        }
        Ok(CurrentDevice { calls: self, before })
    }

    /// The same for calls that the driver forbids while a graph is being captured, though memory has no place in one.
    fn relaxed(&self) -> Result<Relaxed<'_>, Error> {
        let current = self.current()?;
        let mut mode = RELAXED;
        // SAFETY: `mode` names a mode and is a place for the answer.
        self.check("relaxing captures", unsafe { (self.driver.basic.exchange_capture_mode)(&mut mode) })?;
        Ok(Relaxed { calls: self, before: mode, _current: current })
    }

    fn virtual_memory(&self) -> Result<&Virtual, Error> {
        self.driver.virtual_memory.as_ref().ok_or(Error::Unsupported("map pages"))
    }

    fn location(&self) -> Location {
        Location { kind: 1, id: self.device }
    }

    fn access(device: c_int) -> AccessDescription {
        AccessDescription { location: Location { kind: 1, id: device }, flags: READ_WRITE }
    }

    fn properties(&self) -> AllocationProperties {
        AllocationProperties {
            kind: 1,
            handle_types: if self.is_exportable.load(Ordering::Relaxed) { DESCRIPTOR } else { 0 },
            location: self.location(),
            win32: ptr::null_mut(),
            flags: [0, u8::from(self.is_for_rdma.load(Ordering::Relaxed)), 0, 0, 0, 0, 0, 0],
        }
    }

    /// Whether there is certainly memory for so many bytes.
    fn has_room(&self, bytes: u64) -> bool {
        self.memory_info().is_ok_and(|info| info.free >= bytes.saturating_add(ROOM))
    }

    /// The host's time by the clock of a dry run, which the stand-in keeps.
    pub fn modelled_time(&self) -> Option<Duration> {
        // SAFETY: it takes a number alone.
        self.driver.clock.map(|clock| Duration::from_nanos(unsafe { clock(0) }))
    }

    /// Whether the driver is the stand-in of a dry run.
    pub fn is_stand_in(&self) -> bool {
        self.driver.is_stand_in
    }

    /// Size of a page of virtual memory; `None` if the driver or the device has none.
    pub fn page_size(&self) -> Option<u64> {
        if !self.maps_pages() {
            return None;
        }
        let _current = self.current().ok()?;
        let mut bytes = 0;
        // SAFETY: both pointers are valid during the call; 0 asks for the smallest granularity.
        let code = unsafe { (self.virtual_memory().ok()?.granularity)(&mut bytes, &self.properties(), 0) };
        (code == 0 && bytes.is_power_of_two()).then_some(bytes as u64)
    }

    /// Whether the device says that it can map pages: a driver that has the calls may drive one that cannot. HIP's number of the
    /// attribute differs between versions; there the granularity is all that is asked for.
    fn maps_pages(&self) -> bool {
        self.has(MAPS_PAGES).unwrap_or(true)
    }

    /// Whether a CUDA device has an ability.
    fn has(&self, attribute: c_int) -> Option<bool> {
        let Binding::Contexts(contexts) = &self.driver.binding else { return None };
        let mut answer = 0;
        // SAFETY: `answer` is a place for the answer; the device was found when `self` was made.
        let code = unsafe { (contexts.attribute)(&mut answer, attribute, self.device) };
        Some(code == 0 && answer != 0)
    }

    pub fn alloc(&self, bytes: u64) -> Result<Address, Failure> {
        let _current = self.relaxed()?;
        let bytes = usize::try_from(bytes.max(1)).map_err(|_| Failure::OutOfMemory)?;
        let mut address = 0;
        // SAFETY: `address` is a place for the answer.
        self.check_memory("allocating", unsafe { (self.driver.basic.mem_alloc)(&mut address, bytes) })?;
        Ok(address)
    }

    pub fn free(&self, address: Address) -> Result<(), Error> {
        let _current = self.relaxed()?;
        // SAFETY: the driver refuses an address that it did not hand out.
        self.check("freeing", unsafe { (self.driver.basic.mem_free)(address) })
    }

    fn host_memory(&self) -> Result<&HostMemory, Error> {
        self.driver.host_memory.as_ref().ok_or(Error::Unsupported("lock pages of the host"))
    }

    /// Takes page-locked memory of the host, which every device of the process may use.
    pub fn alloc_host(&self, bytes: u64) -> Result<Address, Failure> {
        let alloc = self.host_memory()?.alloc;
        let _current = self.relaxed()?;
        let bytes = usize::try_from(bytes.max(1)).map_err(|_| Failure::OutOfMemory)?;
        let mut address = 0;
        // SAFETY: `address` is a place for the answer; no flags, as PyTorch does.
        self.check_memory("allocating page-locked memory", unsafe { alloc(&mut address, bytes, 0) })?;
        Ok(address)
    }

    pub fn free_host(&self, address: Address) -> Result<(), Error> {
        let free = self.host_memory()?.free;
        let _current = self.relaxed()?;
        // SAFETY: the driver refuses an address that it did not hand out.
        self.check("freeing page-locked memory", unsafe { free(address) })
    }

    /// Tells the stand-in, which computes nothing, that nobody but copies writes to this memory of the host.
    pub fn keep(&self, address: Address) {
        if let Some(keep) = self.driver.keep {
            // SAFETY: it takes a number.
            unsafe { keep(address) };
        }
    }

    /// Queues a copy on a stream of ours, either side of which may be the host's.
    pub fn copy(&self, to: Address, from: Address, bytes: u64, lane: usize) -> Result<(), Error> {
        let copies = self.driver.copies.as_ref().ok_or(Error::Unsupported("keep contents on the host"))?;
        let _current = self.current()?;
        let lane = &self.lanes[lane % LANES];
        if lane.load(Ordering::Acquire) == 0 {
            let mut stream = ptr::null_mut();
            // SAFETY: `stream` is a place for the answer.
            self.check("creating a stream", unsafe { (copies.create_stream)(&mut stream, NON_BLOCKING) })?;
            lane.store(stream.expose_provenance() as u64, Ordering::Release);
        }
        // SAFETY: the caller owns both ranges until it has waited for the device; the stream lives as long as `self`.
        let code = unsafe { (copies.copy)(to, from, bytes as usize, handle(lane.load(Ordering::Acquire))) };
        self.check("copying memory", code)
    }

    fn destroy_lanes(&self) -> Result<(), Error> {
        let (Some(copies), _current) = (&self.driver.copies, self.current()?) else { return Ok(()) };
        for stream in self.lanes.iter().map(|lane| lane.swap(0, Ordering::AcqRel)).filter(|&stream| stream != 0) {
            // SAFETY: nobody else has it, and its copies were waited for.
            self.check("destroying a stream", unsafe { (copies.destroy_stream)(handle(stream)) })?;
        }
        Ok(())
    }

    pub fn reserve(&self, bytes: u64, alignment: u64) -> Result<Address, Error> {
        let reserve = self.virtual_memory()?.reserve;
        let _current = self.current()?;
        let mut address = 0;
        // SAFETY: `address` is a place for the answer; no fixed address is asked for.
        let code = unsafe { reserve(&mut address, bytes as usize, alignment as usize, 0, 0) };
        self.check("reserving addresses", code)?;
        Ok(address)
    }

    pub fn release_range(&self, address: Address, bytes: u64) -> Result<(), Error> {
        let release = self.virtual_memory()?.release_range;
        let _current = self.current()?;
        // SAFETY: the driver refuses a range that it did not reserve.
        self.check("releasing addresses", unsafe { release(address, bytes as usize) })
    }

    /// Creates memory and maps it; its handle. Nobody may use it yet.
    pub fn map(&self, address: Address, bytes: u64) -> Result<MemoryHandle, Failure> {
        let calls = self.virtual_memory()?;
        let _current = self.relaxed()?;
        let mut handle = 0;
        // SAFETY: `handle` is a place for the answer, the properties are valid during the call.
        let mut create = || unsafe { (calls.create)(&mut handle, bytes as usize, &self.properties(), 0) };
        let mut code = create();
        // Some systems refuse what the device says that it has, WSL2 among them, and some of these say that memory has run out.
        for ability in [&self.is_for_rdma, &self.is_exportable] {
            let is_refused = code != 0 && (code != OUT_OF_MEMORY || self.has_room(bytes));
            if is_refused && ability.swap(false, Ordering::Relaxed) {
                code = create();
                // It made no difference.
                ability.store(code == OUT_OF_MEMORY, Ordering::Relaxed);
            }
        }
        self.check_memory("creating memory", code)?;
        self.map_again(handle, address, bytes).inspect_err(|_| {
            // SAFETY: the handle is nobody else's.
            unsafe { (calls.release)(handle) };
        })?;
        Ok(handle)
    }

    /// Maps memory at one more address. Nobody may use it there yet.
    pub fn map_again(&self, memory: MemoryHandle, address: Address, bytes: u64) -> Result<(), Failure> {
        let map = self.virtual_memory()?.map;
        let _current = self.relaxed()?;
        // SAFETY: the caller owns the handle, whose memory has this length; the driver refuses a range that is not reserved.
        self.check_memory("mapping memory", unsafe { map(address, bytes as usize, 0, memory, 0) })
    }

    /// Lets go of memory, which is given back once it is mapped nowhere.
    pub fn release(&self, memory: MemoryHandle) -> Result<(), Error> {
        let release = self.virtual_memory()?.release;
        let _current = self.relaxed()?;
        // SAFETY: the caller gives the handle up.
        self.check("releasing a handle", unsafe { release(memory) })
    }

    /// A descriptor by which other processes get memory.
    pub fn export(&self, memory: MemoryHandle) -> Result<OwnedFd, Error> {
        let sharing = self.driver.sharing.as_ref().filter(|_| self.is_exportable.load(Ordering::Relaxed));
        let export = sharing.ok_or(Error::Unsupported("share its pages with other processes"))?.export;
        let _current = self.relaxed()?;
        let mut descriptor = -1;
        // SAFETY: the caller owns the handle; the answer is a descriptor, and `descriptor` a place for it.
        let code = unsafe { export(&mut descriptor, memory, DESCRIPTOR, 0) };
        self.check("exporting memory", code)?;
        // SAFETY: the driver opened it for us.
        let given = unsafe { OwnedFd::from_raw_fd(descriptor) };
        // Not for programs that are started from here: they would keep the memory.
        Ok(given.try_clone().unwrap_or(given))
    }

    /// Whether [`Calls::allow`] takes a range of several mappings. CUDA's documentation says so, HIP's does not.
    pub fn opens_runs(&self) -> bool {
        matches!(self.driver.binding, Binding::Contexts(_))
    }

    /// Opens mappings that make up a range to this device and to others.
    pub fn allow(&self, address: Address, bytes: u64, peers: &[c_int]) -> Result<(), Failure> {
        let set_access = self.virtual_memory()?.set_access;
        let _current = self.relaxed()?;
        let access: Vec<_> = [self.device].iter().chain(peers).map(|&device| Calls::access(device)).collect();
        // SAFETY: as many descriptions as are said are passed; the driver refuses a range that is not mapped.
        let code = unsafe { set_access(address, bytes as usize, access.as_ptr(), access.len()) };
        self.check_memory("giving access to memory", code)
    }

    pub fn unmap(&self, address: Address, bytes: u64) -> Result<(), Error> {
        let unmap = self.virtual_memory()?.unmap;
        let _current = self.relaxed()?;
        // SAFETY: the driver refuses a range that is not mapped as a whole.
        self.check("unmapping memory", unsafe { unmap(address, bytes as usize) })
    }

    pub fn memory_info(&self) -> Result<MemoryInfo, Error> {
        let _current = self.current()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are places for the answers.
        self.check("asking for memory", unsafe { (self.driver.basic.mem_get_info)(&mut free, &mut total) })?;
        Ok(MemoryInfo { free: free as u64, total: total as u64 })
    }

    fn idle_events(&self) -> MutexGuard<'_, Vec<*mut c_void>> {
        self.idle_events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An event that was not recorded yet, or was somebody's before and is to be recorded again.
    pub fn create_event(&self) -> Result<*mut c_void, Error> {
        if let Some(event) = self.idle_events().pop() {
            return Ok(event);
        }
        let _current = self.current()?;
        let mut event = ptr::null_mut();
        // SAFETY: `event` is a place for the answer.
        let code = unsafe { (self.driver.basic.event_create)(&mut event, EVENT_DISABLE_TIMING) };
        self.check("creating an event", code)?;
        Ok(event)
    }

    pub fn record(&self, event: *mut c_void, stream: Stream) -> Result<(), Error> {
        let _current = self.current()?;
        // SAFETY: the event is alive, as its owner calls; a stream is a handle of the program's, which keeps it alive
        // while it allocates on it.
        self.check("recording an event", unsafe { (self.driver.basic.event_record)(event, handle(stream)) })
    }

    /// Also while another thread captures a graph: asking, as waiting, would end the capture.
    pub fn is_complete(&self, event: *mut c_void) -> Result<bool, Error> {
        let _current = self.relaxed()?;
        // SAFETY: the event is alive, as its owner calls.
        match unsafe { (self.driver.basic.event_query)(event) } {
            NOT_READY => Ok(false),
            code => self.check("asking an event", code).map(|()| true),
        }
    }

    pub fn wait(&self, event: *mut c_void) -> Result<(), Error> {
        let _current = self.relaxed()?;
        // SAFETY: the event is alive, as its owner calls.
        self.check("waiting for an event", unsafe { (self.driver.basic.event_synchronize)(event) })
    }

    pub fn queue_wait(&self, stream: Stream, event: *mut c_void) -> Result<(), Error> {
        let _current = self.current()?;
        // SAFETY: as for `record`; the driver keeps what it needs of the event.
        let code = unsafe { (self.driver.basic.stream_wait_event)(handle(stream), event, 0) };
        self.check("queueing a wait", code)
    }

    /// Takes an event back: waits that were queued for it go by what it was when they were queued.
    pub fn give_back_event(&self, event: *mut c_void) {
        {
            let mut idle = self.idle_events();
            if idle.len() < IDLE_EVENTS {
                return idle.push(event);
            }
        }
        // A driver that refuses leaks one event; there is nobody to tell.
        let _ = self.destroy_event(event);
    }

    fn destroy_event(&self, event: *mut c_void) -> Result<(), Error> {
        let _current = self.current()?;
        // SAFETY: the owner of the event gives it up.
        self.check("destroying an event", unsafe { (self.driver.basic.event_destroy)(event) })
    }

    pub fn synchronize(&self) -> Result<(), Error> {
        let _current = self.current()?;
        // SAFETY: it takes nothing.
        self.check("waiting for the device", unsafe { (self.driver.basic.synchronize)() })
    }
}

/// A stream's handle as the driver takes it.
fn handle(stream: Stream) -> *mut c_void {
    ptr::with_exposed_provenance_mut(stream as usize)
}

impl Drop for Calls {
    fn drop(&mut self) {
        for event in std::mem::take(&mut *self.idle_events()) {
            let _ = self.destroy_event(event);
        }
        let _ = self.destroy_lanes();
        if let (Binding::Contexts(contexts), false) = (&self.driver.binding, self.context.is_null()) {
            // SAFETY: gives up what `new` retained.
            unsafe { (contexts.release)(self.device) };
        }
    }
}
