//! Trace to plan: finds the steps of a trace, tells persistent, static and dynamic requests apart, plans the steady
//! state as a cyclic instance, and fits everything else around it.
//!
//! The way from a trace to a plan:
//! 1. `sequence`: requests in order, each with the request that first finds it gone.
//! 2. `rounds`: where one step ends and the next begins, by marks, annotations, or repetition alone; steps recorded
//!    without call stacks borrow those of earlier ones (`borrow`).
//! 3. `parts`: rounds that do the same are runs of one *part* of the program.
//! 4. `lifetimes`: runs of a part are aligned; what all of them ask for alike is static, the rest dynamic, and so is what
//!    was alike by `chance` or is sometimes `absent`.
//! 5. `outline`: sections, slots, who follows whom, what is carried over and released where.
//! 6. `dynamic`: what differs from run to run is gathered into groups, each with room in the arena.
//! 7. `layout`: offsets.
//!
//! Efficiency of the plans of recorded training runs, by `cargo test -p stalloc-synthesizer --test real_traces --
//! --nocapture` on a 2-core x86-64 container: 1.0000 for seven of nine, 0.9971 and 0.9807 for two pipelines.
//!
//! What comes out is checked by `stalloc_plan`'s independent check before anybody sees it.

mod absent;
mod align;
mod borrow;
mod chance;
mod dynamic;
mod expected;
mod gapped;
mod layout;
mod lifetimes;
mod likes;
mod notes;
mod outline;
mod outliving;
mod parts;
mod rounds;
mod sequence;
mod synthesize;
#[cfg(feature = "testing")]
pub mod testing;

pub use dynamic::{Headroom, Room};
pub use rounds::Witness;
pub use synthesize::{Dynamic, Error, Options, Static, Steps, Summary, plan, steps};
