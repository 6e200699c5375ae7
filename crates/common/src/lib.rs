//! What crates of every floor need in one form only: [`figures`] for people, [`printable`] text, [`redacted`] commands, [`whole_file`] and [`replace`], and the
//! [`PrivateFolder`] for all that lies outside the user's own data, [`settings`], [`tuned`] numbers, [`driver_prices`] and [`DriverPlaces`].

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod driver_places;
pub mod driver_prices;
pub mod figures;
mod printable;
mod private_folder;
mod redacted;
pub mod settings;
pub mod tuning;
mod whole_file;

pub use crate::driver_places::DriverPlaces;
pub use crate::printable::printable;
pub use crate::private_folder::{NotPrivate, PrivateFolder};
pub use crate::redacted::{CommandLine, redacted, redacted_line};
pub use crate::whole_file::{hash, lock_file, replace, temporary_file, users_file, whole_file};
