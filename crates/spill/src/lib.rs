//! Which saved tensors wait in host memory across the peak, and when each is copied out and back.
//!
//! The crate knows a timeline of moments, bytes and two links, one each way; no tensor, no GPU. Same problem, same plan.
//!
//! ```
//! use stalloc_spill::{SavedTensor, StepMoment, SpillProblem, plan};
//!
//! // Forward pass, peak, backward pass; 8 bytes wait across the peak for the last moment.
//! let moments = [2, 4, 2].map(|live| StepMoment { nanoseconds: 10, live }).to_vec();
//! let candidates = vec![SavedTensor { bytes: 8, packed: 0, gone: 1, needed: 2 }];
//! let plan = plan(&SpillProblem { moments, candidates, capacity: 10, host: 64, out_rate: 1 << 30, in_rate: 1 << 30 })?;
//! assert_eq!((plan.victims.len(), plan.peak, plan.added), (1, 4, 8));
//! # Ok::<(), stalloc_spill::Error>(())
//! ```

#![forbid(unsafe_code)]

mod choose;
mod host;
mod profile;
mod schedule;
mod timeline;

pub use choose::plan;
pub use timeline::{Timeline, timeline};

/// A point of the step at which a copy can begin or memory can be released, and the work up to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepMoment {
    /// How long the work takes, nanoseconds.
    pub nanoseconds: u64,
    /// Largest live bytes meanwhile, with every candidate away.
    pub live: u64,
}

/// A saved tensor's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedTensor {
    /// Its size.
    pub bytes: u64,
    /// The moment from which it can be copied out.
    pub packed: usize,
    /// The moment from which nothing else holds it, so that being away saves memory; not before `packed`.
    pub gone: usize,
    /// The moment at which it must be back; after `gone`.
    pub needed: usize,
}

/// A step to make smaller: its moments, tensors that may leave the GPU, room on both sides in bytes, rates in bytes a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpillProblem {
    /// The step, in order.
    pub moments: Vec<StepMoment>,
    /// What may be spilled.
    pub candidates: Vec<SavedTensor>,
    /// The live bytes that are allowed.
    pub capacity: u64,
    /// The host memory that is allowed, bytes.
    pub host: u64,
    /// From device to host.
    pub out_rate: u64,
    /// From host to device.
    pub in_rate: u64,
}

/// A candidate that is spilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Its index.
    pub candidate: usize,
    /// The moment at which the device waits for the copy out, and its memory is released.
    pub release: usize,
    /// The moment at which memory is taken for it again, and the copy back begins.
    pub copy_in: usize,
    /// Where it lies in host memory from `packed` to `needed`, bytes.
    pub offset: u64,
}

/// Which tensors go to host memory and when, what then lives at most, bytes, and by how much a step grows, nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpillPlan {
    /// What is spilled, in the order in which it is packed.
    pub victims: Vec<Victim>,
    /// Host memory that they need, bytes.
    pub host: u64,
    /// Largest live bytes with the plan: above the capacity where no plan reaches it.
    pub peak: u64,
    /// How much longer the step takes, nanoseconds.
    pub added: u64,
}

/// Why a problem has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A candidate's moments are not in order, or not in the timeline.
    #[error("candidate {index} is packed at {packed}, gone at {gone} and needed at {needed} of {moments} moments")]
    Moments {
        /// Which candidate.
        index: usize,
        /// Its moment of the same name.
        packed: usize,
        /// Its moment of the same name.
        gone: usize,
        /// Its moment of the same name.
        needed: usize,
        /// How many there are.
        moments: usize,
    },
    /// Bytes or nanoseconds are more than can be counted.
    #[error("the bytes or nanoseconds of all moments and candidates together are above 2^62")]
    TooLarge,
    /// A link copies nothing.
    #[error("a link of 0 bytes a second copies nothing")]
    NoLink,
}

impl SpillProblem {
    /// Refuses what cannot be planned.
    fn check(&self) -> Result<(), Error> {
        let moments = self.moments.len();
        for (index, &SavedTensor { packed, gone, needed, .. }) in self.candidates.iter().enumerate() {
            if packed > gone || gone >= needed || needed >= moments {
                return Err(Error::Moments { index, packed, gone, needed, moments });
            }
        }
        if self.out_rate == 0 || self.in_rate == 0 {
            return Err(Error::NoLink);
        }
        let most = self.moments.iter().map(|moment| moment.live).max().unwrap_or(0);
        let copies = |candidate: &SavedTensor| {
            [nanoseconds(candidate.bytes, self.out_rate), nanoseconds(candidate.bytes, self.in_rate)]
        };
        let bytes = self.candidates.iter().map(|candidate| candidate.bytes).chain([most]);
        let times = self.moments.iter().map(|moment| moment.nanoseconds).chain(self.candidates.iter().flat_map(copies));
        let is_small = |sum: Option<u64>| sum.is_some_and(|sum| sum < 1 << 62);
        let sum = |mut of: Box<dyn Iterator<Item = u64> + '_>| of.try_fold(0, u64::checked_add);
        if is_small(sum(Box::new(bytes))) && is_small(sum(Box::new(times))) { Ok(()) } else { Err(Error::TooLarge) }
    }
}

/// How long a link of `rate` bytes a second takes for `bytes`.
fn nanoseconds(bytes: u64, rate: u64) -> u64 {
    let time = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(rate.max(1)));
    u64::try_from(time).unwrap_or(u64::MAX)
}
