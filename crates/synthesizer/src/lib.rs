//! Requests to plan: learns which steps of a program repeat exactly, and chooses addresses for what they ask for.
//!
//! Only what repeats exactly is planned. A request is a *key* (size and stream), a step is the stretch of requests between
//! two boundaries, and two steps are of one *kind* if and only if their keys are equal. The way to a plan is the same for a
//! recording and for a running job:
//! 1. `step_detection`: where one step ends and the next begins, by marks, annotations, or repetition alone.
//! 2. [`Learner`]: hears allocations, frees and boundaries; keeps the kinds of steps and when each of their requests ends.
//! 3. [`Draft`]: what a learner knows at one moment, to make a plan from in another thread.
//! 4. `ends`: how long the requests of each entry live, whatever the step; what nothing bounds gets no offset.
//! 5. `outline`: sections, slots, who follows whom, what is carried over and released where.
//! 6. `layout`: offsets, around what lives already and stays.
//!
//! What comes out is checked by `stalloc_plan`'s independent check before anybody sees it.

#![forbid(unsafe_code)]

mod draft;
mod ends;
mod error;
mod layout;
mod learner;
mod limits;
mod make;
mod notes;
mod outline;
mod recorded;
mod step_detection;
mod synthesize;
mod tuning;
mod unmarked;

pub use draft::Draft;
pub use error::Error;
pub use learner::{Learner, RequestKey};
pub use make::{Around, Drafted};
pub use step_detection::{Steps, Witness};
pub use synthesize::{Dynamic, PlanSummary, Static, SynthesisOptions, plan, steps};
pub use tuning::{TUNED, exact_share, recent_steps};
