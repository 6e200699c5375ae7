//! An arena, whatever device it is on.

use std::ops::Range;
use std::os::fd::OwnedFd;

use stalloc_allocator::{
    Arena, Error, FrameSet, Freed, JournalEvent, LiveBlock, Moved, PoolId, PoolPart, Script, Served, Statistics,
};
use stalloc_device::{Address, Device, Stream};

/// A trait of [`Arena`]'s methods: those that take a block back, if it is one; others that change it; and those that ask.
macro_rules! serving {
    (
        takes_back { $($take:ident -> $Taken:ty;)* }
        changes { $($change:ident($($given:ident: $Given:ty),*) $(-> $Changed:ty)?;)* }
        asks { $($ask:ident($($about:ident: $About:ty),*) $(-> $Answer:ty)?;)* }
    ) => {
        /// The methods of an arena, whatever its device is, so that arenas of all devices are of one type.
        pub trait Serving: Send {
            $(#[doc = concat!("See [`Arena::", stringify!($take), "`].")]
            fn $take(&mut self, address: Address) -> Option<$Taken>;)*
            $(#[doc = concat!("See [`Arena::", stringify!($change), "`].")]
            fn $change(&mut self, $($given: $Given),*) $(-> $Changed)?;)*
            $(#[doc = concat!("See [`Arena::", stringify!($ask), "`].")]
            fn $ask(&self, $($about: $About),*) $(-> $Answer)?;)*
        }

        impl<D: Device + Send> Serving for Arena<D> {
            $(fn $take(&mut self, address: Address) -> Option<$Taken> {
                Arena::$take(self, address).ok()
            })*
            $(fn $change(&mut self, $($given: $Given),*) $(-> $Changed)? {
                Arena::$change(self, $($given),*)
            })*
            $(fn $ask(&self, $($about: $About),*) $(-> $Answer)? {
                Arena::$ask(self, $($about),*)
            })*
        }
    };
}

serving! {
    takes_back {
        free -> Freed;
        free_told -> LiveBlock;
    }
    changes {
        serve(size: u64, stream: Stream) -> Option<Served>;
        record_stream(address: Address, stream: Stream) -> Result<(), Error>;
        allow_peer(peer: u32) -> Result<(), Error>;
        set_capturing(capturing: bool);
        step_begin();
        give_back(bytes: u64) -> Result<u64, Error>;
        give_back_idle() -> Result<u64, Error>;
        take_journal(empty: &mut Vec<JournalEvent>) -> bool;
        rivals_hold(bytes: u64, given_back: u64);
        propose(script: Script, frames: &FrameSet) -> bool;
        take_retired() -> Option<Box<Script>>;
        handles(block: &LiveBlock) -> Option<Vec<Range<Address>>>;
        export(handle: Address) -> Result<OwnedFd, Error>;
        pool_begin(id: PoolId) -> bool;
        pool_end(id: PoolId);
        pool_serve(id: PoolId, size: u64, stream: Stream) -> Option<Served>;
        sleep(keep: &[Range<Address>], discard: &[Range<Address>]) -> Result<Moved, Error>;
        wake(first: &[Range<Address>]) -> Result<Moved, Error>;
        pool_restore(id: PoolId, blocks: &[LiveBlock]) -> (Vec<LiveBlock>, Vec<LiveBlock>);
    }
    asks {
        can_sleep() -> Result<(), Error>;
        asleep() -> Option<u64>;
        sleeps_at(address: Address) -> bool;
        block_around(address: Address) -> Option<LiveBlock>;
        blocks() -> Vec<LiveBlock>;
        addresses() -> Range<Address>;
        mapped() -> Vec<Range<Address>>;
        pool_parts() -> Vec<PoolPart>;
        frame_bytes() -> Option<u64>;
        has_departed() -> bool;
        is_solid() -> bool;
        reserved() -> u64;
        statistics() -> Statistics;
    }
}
