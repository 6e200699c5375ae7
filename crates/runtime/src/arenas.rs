//! What the process asks of its arenas.

use std::ops::Range;
use std::sync::OnceLock;

use stalloc_allocator::{Arena, Error, Freed, LiveBlock, Moved, PoolId, Served};
use stalloc_common::{figures, settings};
use stalloc_device::{Address, Device, Error as DeviceError, GpuDevice, Host, HostPages, Shared, Stream};
use stalloc_plan::Plan;

use crate::budget::{Budgeted, DeviceBudget};
use crate::counters::Counters;
use crate::devices::{self, ArenaReport, HOST, LockedArena, MOST, Open, index, of, owner, used, with};
use crate::exports::Export;
use crate::fork;
use crate::learning;
use crate::messages::say;
use crate::order;
use crate::pinned;
use crate::serving::Serving;
use crate::solid;

/// Host memory that an arena may take, bytes: what the operating system allows is found when pages are touched.
pub(crate) const HOST_BYTES: u64 = 1 << 40;

static BUDGETS: [DeviceBudget; MOST] = [const { DeviceBudget::new() }; MOST];

static ON_DEPARTURE: OnceLock<fn(i32)> = OnceLock::new();

/// A GPU, by whichever driver is there.
pub(crate) fn gpu(device: i32) -> Result<GpuDevice, DeviceError> {
    let ordinal = u32::try_from(device).unwrap_or(u32::MAX);
    GpuDevice::cuda(ordinal).or_else(|cuda| GpuDevice::hip(ordinal).map_err(|_| cuda))
}

/// Plans that say so were made for a program on an AMD GPU; others follow whichever driver is there. With
/// `STALLOC_DYNAMIC=0`, as users of the paper's artifact know it, what is not planned is left to PyTorch's allocator.
fn open_gpu(plan: &Plan) -> Result<Box<dyn Serving>, Error> {
    fork::in_use();
    let number = i32::try_from(plan.device).unwrap_or(i32::MAX);
    let gpu = gpu(number)?;
    let budget = &BUDGETS[index(number).ok_or_else(|| Error::Plan(format!("there is no device {}", plan.device)))?];
    let is_amd = gpu.is_amd();
    let device = Budgeted::new(gpu, budget);
    let room = device.memory_info().map(|info| info.free.min(budget.of_arena())).ok();
    let arena = match (solid::asked(), device.page_size()) {
        (None, Some(_)) if !is_amd => tight(Arena::new(device, plan)?),
        (more, _) => {
            let why = if is_amd { DOES_NOT_MAP } else { CANNOT_MAP };
            open_solid(device, plan, more.unwrap_or(0), budget.of_arena(), why)?
        }
    };
    let planned_only = settings::DYNAMIC.is("0");
    Ok(learned_from(if planned_only { arena.planned_only() } else { arena }, number, room))
}

/// An arena in one allocation, `more` bytes larger than its plan needs.
fn open_solid<D: Device>(device: D, plan: &Plan, more: u64, allowed: u64, why: &str) -> Result<Arena<D>, Error> {
    let free = device.memory_info()?.free.min(allowed);
    let bytes = match solid::size(plan, more, free) {
        solid::Size::Known(bytes) => bytes,
        solid::Size::Share(bytes) => {
            let (taken, why) = (figures::bytes(bytes), if solid::asked().is_some() { "" } else { why });
            let device = plan.device;
            say(&format!(
                "dev{device}: {why}without a plan the arena takes {taken}, 9/10 of what is free; --solid=SIZE takes SIZE"
            ));
            bytes
        }
    };
    Arena::solid(device, plan, bytes)
}

/// Why an arena is one allocation though nobody asked for it.
const CANNOT_MAP: &str = "this GPU cannot map pages; ";

/// Programs were seen to read zeros from pages that had just been mapped, and to hang (rocm-systems#11693, #6982).
const DOES_NOT_MAP: &str = "on AMD GPUs the arena is one allocation; ";

/// With `STALLOC_TIGHT=1` an arena holds next to nothing but what tensors use, however often it remaps for that.
fn tight<D: Device>(mut arena: Arena<D>) -> Arena<D> {
    arena.set_tight(settings::TIGHT.is("1"));
    arena
}

fn open_host(plan: &Plan) -> Result<Box<dyn Serving>, Error> {
    fork::in_use();
    if settings::HOST_PAGES.text().is_some() {
        return Ok(learned_from(tight(Arena::new(HostPages::new(HOST_BYTES), plan)?), HOST, None));
    }
    Ok(learned_from(tight(Arena::new(Shared::new(Host::new(HOST_BYTES)), plan)?), HOST, None))
}

/// An arena that keeps a journal, if this process learns.
fn learned_from<D: Device + Send + 'static>(mut arena: Arena<D>, device: i32, room: Option<u64>) -> Box<dyn Serving> {
    if learning::is_on() {
        arena.keep_journal();
        learning::arena_opened(device, room);
    }
    Box::new(arena)
}

/// Gives a device (or [`HOST`]) a plan to follow; false if there is no such device or it has a plan already.
pub fn prepare(device: i32, mut plan: Plan) -> bool {
    let (Some(index), open) = (index(device), if device == HOST { open_host as Open } else { open_gpu as Open }) else {
        return false;
    };
    // A rank's plan may have been recorded on another of the machine's GPUs.
    plan.device = u32::try_from(device).unwrap_or(0);
    devices::prepare(index, plan, open)
}

/// Takes back all plans that were not begun with: what a process was told before it was forked is not for its child.
pub fn unprepare() {
    used().iter().for_each(LockedArena::unprepare);
}

/// Calls back once per device when the program first leaves its plan. No lock is held then.
pub fn on_departure(callback: fn(i32)) {
    let _ = ON_DEPARTURE.set(callback);
}

/// Serves `size` bytes on a stream; `None`: ask the fallback.
pub fn serve(device: i32, size: u64, stream: Stream) -> Option<Served> {
    let (served, departed) = of(device)?.serve(size, stream);
    if departed && let Some(callback) = ON_DEPARTURE.get() {
        callback(device);
    }
    if let Some(served) = served
        && device != HOST
    {
        order::handed_out(device, served.address, served.bytes, stream);
    }
    served
}

/// Takes a block back and returns its device and what it was; `None` if no live block begins at the address.
pub fn free(address: Address) -> Option<(i32, Freed)> {
    let (device, locked) = owner(address)?;
    if device != HOST {
        order::given_back(device, address);
    }
    Some((device, locked.free(address)?))
}

/// The same, with all that is known of the block: see [`LockedArena::free_told`].
pub fn free_told(address: Address) -> Option<(i32, LiveBlock)> {
    let (device, locked) = owner(address)?;
    if device != HOST {
        order::given_back(device, address);
    }
    Some((device, locked.free_told(address)?))
}

/// A graph holds a pool of a device's arena from now on; false if it has none.
pub fn pool_begin(device: i32, id: PoolId) -> bool {
    of(device).is_some_and(|locked| locked.pool_begin(id))
}

/// Serves `size` bytes of a pool; `None`: ask the fallback.
pub fn pool_serve(device: i32, id: PoolId, size: u64, stream: Stream) -> Option<Served> {
    let served = of(device)?.pool_serve(id, size, stream)?;
    order::handed_out(device, served.address, served.bytes, stream);
    Some(served)
}

/// See [`Arena::pool_restore`].
pub fn pool_restore(device: i32, id: PoolId, blocks: &[LiveBlock]) -> (Vec<LiveBlock>, Vec<LiveBlock>) {
    let (freed, live) = of(device).map(|locked| locked.pool_restore(id, blocks)).unwrap_or_default();
    freed.iter().for_each(|block| order::given_back(device, block.address));
    live.iter().for_each(|block| order::handed_out(device, block.address, block.size, block.stream));
    (freed, live)
}

/// The live block that an address lies in.
pub fn block_around(address: Address) -> Option<LiveBlock> {
    owner(address)?.1.with(|arena| arena.block_around(address))?
}

/// See [`LockedArena::share`].
pub fn share(address: Address) -> Option<Result<Export, String>> {
    owner(address)?.1.share(address)
}

/// See [`Arena::record_stream`]; an address of nobody's is ignored.
pub fn record_stream(address: Address, stream: Stream) {
    if let Some((device, locked)) = owner(address) {
        if device != HOST {
            order::used_on(device, address, stream);
        }
        // The block may have been freed by another thread meanwhile: then nobody uses it.
        locked.with(|arena| arena.record_stream(address, stream).ok());
    }
}

/// Lets the device `peer` use the memory of the arena of `device`; false if that cannot be had.
pub fn allow_peer(device: i32, peer: i32) -> bool {
    let peer = u32::try_from(peer).unwrap_or(u32::MAX);
    of(device).is_none_or(|locked| locked.allow_peer(peer))
}

/// See [`Arena::set_capturing`]. Pinned memory is served to no graph either.
pub fn set_capturing(device: i32, capturing: bool) {
    pinned::set_capturing(device, capturing);
    with(device, |arena| arena.set_capturing(capturing));
}

/// The program begins a step, on every device.
pub fn step_begin() {
    if fork::is_child() {
        return;
    }
    used().iter().for_each(LockedArena::step_begin);
    learning::step_begun();
}

/// Gives device memory back that no live block needs; returns the bytes.
pub fn trim(device: i32) -> u64 {
    with(device, |arena| arena.give_back(u64::MAX).unwrap_or(0)).unwrap_or(0)
}

/// Whether the arena of a device may sleep now; `None` if there is none.
pub fn can_sleep(device: i32) -> Option<Result<(), Error>> {
    of(device)?.when_it_may_sleep(|_| Ok(()))
}

/// See [`Arena::sleep`]; `None` if there is no arena.
pub fn sleep(device: i32, keep: &[Range<Address>], discard: &[Range<Address>]) -> Option<Result<Moved, Error>> {
    of(device)?.when_it_may_sleep(|arena| arena.sleep(keep, discard))
}

/// See [`Arena::wake`].
pub fn wake(device: i32, first: &[Range<Address>]) -> Option<Result<Moved, Error>> {
    with(device, |arena| arena.wake(first))
}

/// See [`Arena::asleep`].
pub fn asleep(device: i32) -> Option<u64> {
    with(device, |arena| arena.asleep())?
}

/// See [`Arena::sleeps_at`].
pub fn sleeps_at(address: Address) -> bool {
    owner(address).and_then(|(_, locked)| locked.with(|arena| arena.sleeps_at(address))).unwrap_or(false)
}

/// The arena's address range and the device memory behind it.
pub fn arena(device: i32) -> Option<(Range<Address>, u64)> {
    with(device, |arena| (arena.addresses(), arena.reserved()))
}

/// Whether the arena is one allocation, whose addresses the driver knows as one piece.
pub fn is_solid(device: i32) -> bool {
    with(device, |arena| arena.is_solid()).unwrap_or(false)
}

/// The parts of the arena's range that have device memory behind them, in order, and after how many changes this is so.
pub fn mapped(device: i32) -> (Vec<Range<Address>>, u64) {
    // An arena changes its memory only while its lock is held, as it is here.
    with(device, |arena| (arena.mapped(), memory_changes(device))).unwrap_or_default()
}

/// How often the memory behind a GPU's arena changed so far. Takes no lock.
pub fn memory_changes(device: i32) -> u64 {
    index(device).map_or(0, |index| BUDGETS[index].changes())
}

/// Arena and fallback of a device may hold so much device memory, bytes; `u64::MAX`: no limit. The arena keeps what it has,
/// and takes no more than the fallback leaves.
pub fn set_limit(device: i32, bytes: u64) {
    if let Some(index) = index(device) {
        BUDGETS[index].set_limit(bytes);
    }
}

/// No stream is made to wait for another, on any device. For processes that are one of several: a wait that the program did not
/// ask for can complete a cycle with what streams of other processes wait for.
pub fn forbid_waits() {
    BUDGETS.iter().for_each(DeviceBudget::forbid_waits);
}

/// Every block that is in use or pending, in the order of addresses.
pub fn blocks(device: i32) -> Vec<LiveBlock> {
    with(device, |arena| arena.blocks()).unwrap_or_default()
}

/// The blocks and the mapped parts at one moment.
pub fn layout(device: i32) -> (Vec<LiveBlock>, Vec<Range<Address>>) {
    with(device, |arena| (arena.blocks(), arena.mapped())).unwrap_or_default()
}

/// What is counted of a device's arena; then peaks and totals begin again, those that are to.
pub fn counters(device: i32, peaks: bool, totals: bool) -> Counters {
    of(device).map(|locked| locked.counters(peaks, totals)).unwrap_or_default()
}

/// The fallback of a device holds this much device memory now, and tensors use so many bytes of it.
pub fn fallback_holds(device: i32, reserved: u64, allocated: u64) {
    if let (Some(locked), Some(index)) = (of(device), index(device)) {
        BUDGETS[index].set_fallback(reserved);
        locked.set_fallback(reserved, allocated);
    }
}

/// What was done on a device so far; `None` if nothing was served there.
pub fn report(device: i32) -> Option<ArenaReport> {
    of(device)?.report()
}
