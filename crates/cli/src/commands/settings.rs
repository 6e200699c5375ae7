//! `stalloc --settings`: every variable of the environment that is ours, and what it is now.

use stalloc_common::settings::{ALL, SetBy};

use crate::error::{Ending, Error};
use crate::output;

/// Prints them.
pub fn run() -> Result<Ending, Error> {
    let parts = [
        (SetBy::User, "Settings, by variables of the environment:"),
        (SetBy::Stalloc, "What stalloc tells the processes that it starts:"),
        (SetBy::Project, "Of the project's own tests and benches:"),
    ];
    for (index, (set_by, title)) in parts.into_iter().enumerate() {
        output::line(&format!("{}{title}", if index > 0 { "\n" } else { "" }))?;
        for one in ALL.iter().filter(|one| one.set_by == set_by) {
            let now = std::env::var_os(one).map(|now| format!(" = {}", now.to_string_lossy()));
            output::line(&format!("  {one}{}\n      {}", now.unwrap_or_default(), one.says.replace('`', "")))?;
        }
    }
    Ok(Ending::Done)
}
