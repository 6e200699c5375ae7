//! An arena, whatever device it is on.

use std::ops::Range;
use std::os::fd::OwnedFd;

use stalloc_allocator::{Arena, Error, Event, FrameSet, Freed, LiveBlock, Moved, PoolId, PoolPart, Script, Statistics};
use stalloc_device::{Address, Device, Stream};

/// What came of a request.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The block's address, if it was served.
    pub address: Option<Address>,
    /// Device memory behind the arena, bytes.
    pub reserved: u64,
    /// The program has left its plan, here or before.
    pub departed: bool,
}

/// What an arena can do.
pub trait Serving: Send {
    /// See [`Arena::serve`].
    fn serve(&mut self, size: u64, stream: Stream) -> Answer;
    /// See [`Arena::free`].
    fn free(&mut self, address: Address) -> Option<Freed>;
    /// See [`Arena::free_told`].
    fn free_told(&mut self, address: Address) -> Option<LiveBlock>;
    /// See [`Arena::record_stream`].
    fn record_stream(&mut self, address: Address, stream: Stream) -> Result<(), Error>;
    /// See [`Arena::allow_peer`].
    fn allow_peer(&mut self, peer: u32) -> Result<(), Error>;
    /// See [`Arena::set_capturing`].
    fn set_capturing(&mut self, capturing: bool);
    /// See [`Arena::step_begin`].
    fn step_begin(&mut self);
    /// See [`Arena::give_back`].
    fn give_back(&mut self, bytes: u64) -> Result<u64, Error>;
    /// See [`Arena::give_back_idle`].
    fn give_back_idle(&mut self) -> Result<u64, Error>;
    /// See [`Arena::take_journal`].
    fn take_journal(&mut self, empty: &mut Vec<Event>) -> bool;
    /// See [`Arena::frame_bytes`].
    fn frame_bytes(&self) -> Option<u64>;
    /// See [`Arena::propose`].
    fn propose(&mut self, script: Script, frames: &FrameSet) -> bool;
    /// See [`Arena::take_retired`].
    fn take_retired(&mut self) -> Option<Box<Script>>;
    /// See [`Arena::block_around`].
    fn block_around(&self, address: Address) -> Option<LiveBlock>;
    /// See [`Arena::blocks`].
    fn blocks(&self) -> Vec<LiveBlock>;
    /// See [`Arena::addresses`].
    fn addresses(&self) -> Range<Address>;
    /// See [`Arena::handles`].
    fn handles(&mut self, block: &LiveBlock) -> Option<Vec<Range<Address>>>;
    /// See [`Arena::export`].
    fn export(&mut self, handle: Address) -> Result<OwnedFd, Error>;
    /// See [`Arena::mapped`].
    fn mapped(&self) -> Vec<Range<Address>>;
    /// See [`Arena::pool_begin`].
    fn pool_begin(&mut self, id: PoolId) -> bool;
    /// See [`Arena::pool_end`].
    fn pool_end(&mut self, id: PoolId);
    /// See [`Arena::pool_serve`].
    fn pool_serve(&mut self, id: PoolId, size: u64, stream: Stream) -> Option<Address>;
    /// See [`Arena::pool_parts`].
    fn pool_parts(&self) -> Vec<PoolPart>;
    /// See [`Arena::pool_restore`].
    fn pool_restore(&mut self, id: PoolId, blocks: &[LiveBlock]) -> (Vec<LiveBlock>, Vec<LiveBlock>);
    /// See [`Arena::can_sleep`].
    fn can_sleep(&self) -> Result<(), Error>;
    /// See [`Arena::sleep`].
    fn sleep(&mut self, keep: &[Range<Address>], discard: &[Range<Address>]) -> Result<Moved, Error>;
    /// See [`Arena::wake`].
    fn wake(&mut self, first: &[Range<Address>]) -> Result<Moved, Error>;
    /// See [`Arena::asleep`].
    fn asleep(&self) -> Option<u64>;
    /// See [`Arena::sleeps_at`].
    fn sleeps_at(&self, address: Address) -> bool;
    /// See [`Arena::is_solid`].
    fn is_solid(&self) -> bool;
    /// See [`Arena::reserved`].
    fn reserved(&self) -> u64;
    /// See [`Arena::statistics`].
    fn statistics(&self) -> Statistics;
}

impl<D: Device + Send> Serving for Arena<D> {
    fn serve(&mut self, size: u64, stream: Stream) -> Answer {
        let address = self.serve(size, stream).map(|served| served.address);
        Answer { address, reserved: self.reserved(), departed: self.has_departed() }
    }
    fn free(&mut self, address: Address) -> Option<Freed> {
        self.free(address).ok()
    }
    fn free_told(&mut self, address: Address) -> Option<LiveBlock> {
        self.free_told(address).ok()
    }
    fn record_stream(&mut self, address: Address, stream: Stream) -> Result<(), Error> {
        self.record_stream(address, stream)
    }
    fn allow_peer(&mut self, peer: u32) -> Result<(), Error> {
        self.allow_peer(peer)
    }
    fn set_capturing(&mut self, capturing: bool) {
        self.set_capturing(capturing);
    }
    fn step_begin(&mut self) {
        self.step_begin();
    }
    fn give_back(&mut self, bytes: u64) -> Result<u64, Error> {
        self.give_back(bytes)
    }
    fn give_back_idle(&mut self) -> Result<u64, Error> {
        self.give_back_idle()
    }
    fn take_journal(&mut self, empty: &mut Vec<Event>) -> bool {
        self.take_journal(empty)
    }
    fn frame_bytes(&self) -> Option<u64> {
        self.frame_bytes()
    }
    fn propose(&mut self, script: Script, frames: &FrameSet) -> bool {
        self.propose(script, frames)
    }
    fn take_retired(&mut self) -> Option<Box<Script>> {
        self.take_retired()
    }
    fn block_around(&self, address: Address) -> Option<LiveBlock> {
        self.block_around(address)
    }
    fn blocks(&self) -> Vec<LiveBlock> {
        self.blocks()
    }
    fn addresses(&self) -> Range<Address> {
        self.addresses()
    }
    fn handles(&mut self, block: &LiveBlock) -> Option<Vec<Range<Address>>> {
        self.handles(block)
    }
    fn export(&mut self, handle: Address) -> Result<OwnedFd, Error> {
        self.export(handle)
    }
    fn mapped(&self) -> Vec<Range<Address>> {
        self.mapped()
    }
    fn pool_begin(&mut self, id: PoolId) -> bool {
        self.pool_begin(id)
    }
    fn pool_end(&mut self, id: PoolId) {
        self.pool_end(id);
    }
    fn pool_serve(&mut self, id: PoolId, size: u64, stream: Stream) -> Option<Address> {
        self.pool_serve(id, size, stream)
    }
    fn pool_parts(&self) -> Vec<PoolPart> {
        self.pool_parts()
    }
    fn pool_restore(&mut self, id: PoolId, blocks: &[LiveBlock]) -> (Vec<LiveBlock>, Vec<LiveBlock>) {
        self.pool_restore(id, blocks)
    }
    fn can_sleep(&self) -> Result<(), Error> {
        self.can_sleep()
    }
    fn sleep(&mut self, keep: &[Range<Address>], discard: &[Range<Address>]) -> Result<Moved, Error> {
        self.sleep(keep, discard)
    }
    fn wake(&mut self, first: &[Range<Address>]) -> Result<Moved, Error> {
        self.wake(first)
    }
    fn asleep(&self) -> Option<u64> {
        self.asleep()
    }
    fn sleeps_at(&self, address: Address) -> bool {
        self.sleeps_at(address)
    }
    fn is_solid(&self) -> bool {
        self.is_solid()
    }
    fn reserved(&self) -> u64 {
        self.reserved()
    }
    fn statistics(&self) -> Statistics {
        self.statistics()
    }
}
