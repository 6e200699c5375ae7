//! What replays must do.
