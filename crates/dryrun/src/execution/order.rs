//! The order of work, and of all use of memory: kept where `STALLOC_DRYRUN_LATE_EVENTS` asks for it.
//!
//! An allocator tells of its blocks (`stalloc_dryrun_block`); what the program does with streams and events is seen anyway. A
//! complaint says which memory was handed out, used, or taken away while somebody else may still use it.

use super::{Execution, Handle, events::EventState, execution, streams::LEGACY};
use crate::{
    config::config,
    log,
    memory::{is_device, memory},
};
use stalloc_order::{Moment, Violation, WorkOrder};
use std::{
    ffi::c_int,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Complaints that are written; all are counted.
const MOST_COMPLAINTS: u64 = 20;

static VIOLATIONS: AtomicU64 = AtomicU64::new(0);

/// Whether order is kept in this process.
fn is_kept() -> bool {
    config().late_events.is_some()
}

/// A stream's name in the order: the default streams of two devices are two.
pub(super) fn name(stream: Handle, device: u32) -> Handle {
    if LEGACY.contains(&stream) { u64::from(device) } else { stream }
}

fn check(checked: Result<(), Violation>) {
    if let Err(violation) = checked
        && VIOLATIONS.fetch_add(1, Relaxed) < MOST_COMPLAINTS
    {
        log::complain(&format!("order: {violation}"));
    }
}

impl Execution {
    /// The order, if it is kept, and a stream's name in it.
    fn ordered(&mut self, stream: Handle) -> Option<(&mut WorkOrder, Handle)> {
        let order = self.order.as_mut()?;
        let device = if LEGACY.contains(&stream) { crate::runtime_api::current_device() } else { 0 };
        Some((order, name(stream, device)))
    }

    pub(super) fn order_stream(&mut self, stream: Handle, device: u32) {
        if let Some(order) = &mut self.order {
            order.add_blocking(stream, u64::from(device));
        }
    }

    pub(super) fn order_record(&mut self, stream: Handle) -> Option<Moment> {
        self.ordered(stream).map(|(order, name)| order.record(name))
    }

    pub(super) fn order_wait(&mut self, stream: Handle, moment: Option<&Moment>) {
        if let (Some((order, name)), Some(moment)) = (self.ordered(stream), moment) {
            order.queue_wait(name, moment);
        }
    }

    /// Whether an event is complete: by the clock, or by chance where order is kept.
    pub(super) fn is_past(&mut self, event: &EventState) -> bool {
        match (&mut self.order, &event.moment) {
            (Some(order), Some(moment)) => order.completed(moment),
            _ => self.timeline.is_past(event.complete.unwrap_or(0)),
        }
    }

    pub(super) fn host_waits(&mut self, moment: Option<&Moment>) {
        if let (Some(order), Some(moment)) = (&mut self.order, moment) {
            order.wait(moment);
        }
    }

    pub(super) fn is_stream_done(&mut self, stream: Handle) -> bool {
        if let Some((order, name)) = self.ordered(stream) {
            return order.stream_completed(name);
        }
        let done = self.timeline.done(Some(Self::line(stream)));
        self.timeline.is_past(done)
    }

    pub(super) fn host_waits_for(&mut self, stream: Handle) {
        if let Some((order, name)) = self.ordered(stream) {
            order.wait_for_stream(name);
        }
    }

    pub(super) fn host_waits_for_all(&mut self) {
        if let Some(order) = &mut self.order {
            order.wait_for_all();
        }
    }
}

/// A copy or fill on a stream reads or writes memory.
pub fn accessed(start: u64, bytes: u64, stream: Handle) {
    if is_kept()
        && let Some((order, name)) = execution().ordered(stream)
    {
        check(order.accessed(start, bytes, name));
        // Whether the allocator was told of it or not.
        if !is_device(start) {
            order.used_once(start, name);
        }
    }
}

/// Memory is taken from behind addresses; nobody waits for the device.
pub fn unmapped(start: u64, bytes: u64) {
    if is_kept()
        && let Some(order) = &mut execution().order
    {
        check(order.unmapped(start, bytes));
    }
}

/// Blocks that allocators told of, and violations of the order.
pub fn tally() -> (u64, u64) {
    let blocks = if is_kept() { execution().order.as_ref().map_or(0, WorkOrder::handed_out_in_all) } else { 0 };
    (blocks, VIOLATIONS.load(Relaxed))
}

exports! {
    // What happened to a block: 0 it was handed out, 1 a stream uses it too, 2 it is about to be given back. Whether order is kept.
    fn stalloc_dryrun_block(what: c_int, device: c_int, address: u64, bytes: u64, stream: Handle) -> c_int {
        if !is_kept() {
            return 0;
        }
        let stream = name(stream, device.unsigned_abs());
        let behind = if what == 0 { memory().virtual_memory().0.behind(address, bytes) } else { Vec::new() };
        let execution = &mut *execution();
        if let Some(order) = &mut execution.order {
            // The memory behind a block is ordered as its addresses are: pages can be mapped elsewhere while they are in use.
            let behind_blocks = &mut execution.behind_blocks;
            match what {
                0 => {
                    check(order.handed_out(address, bytes, stream));
                    behind.iter().for_each(|&(start, bytes)| check(order.handed_out(start, bytes, stream)));
                    behind_blocks.insert(address, behind);
                }
                1 => {
                    order.used_on(address, stream);
                    let behind = behind_blocks.get(&address).into_iter().flatten();
                    behind.for_each(|&(start, _)| order.used_on(start, stream));
                }
                2 => {
                    order.given_back(address);
                    for (start, _) in behind_blocks.remove(&address).into_iter().flatten() {
                        order.given_back(start);
                    }
                }
                _ => {}
            }
        }
        1
    }
}
