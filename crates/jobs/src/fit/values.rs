//! The values that are tried, and the command that they are put into.

use std::ffi::{OsStr, OsString};

use stalloc_common::CommandLine;

use crate::fit::{Error, WorldSize};

/// The most values that one variable's list, or one range, stands for.
const MOST_VALUES: u64 = 1 << 32;

/// The most combinations of the lists.
pub const MOST_COMBINATIONS: usize = 1000;

/// A variable of the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name: `{NAME}` in the command.
    pub name: String,
    /// What is tried.
    pub values: Values,
}

/// What is tried for a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// Whole numbers, of which the largest that fits is searched.
    Range {
        /// The smallest.
        first: i64,
        /// How far apart.
        step: i64,
        /// How many there are, at least one.
        count: u64,
    },
    /// Each of these.
    List(Vec<String>),
}

/// The value of each variable, in the order of the variables.
pub type Assignment = Vec<(String, String)>;

impl Variable {
    /// Reads `NAME=A..B`, `NAME=A..B:STEP` or `NAME=A,B,C`.
    ///
    /// # Errors
    /// [`Error::Vary`], with what is wrong.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong = |what: &str| Error::Vary { text: text.to_owned(), what: what.to_owned() };
        let (name, values) = text.split_once('=').ok_or_else(|| wrong("there is no ="))?;
        if !is_name(name) {
            return Err(wrong("a name has letters, digits and _ and begins with none of the digits"));
        }
        let values = match values.split_once("..") {
            Some((first, rest)) => range(first, rest).map_err(|what| wrong(&what))?,
            None => Values::List(list(values).map_err(|what| wrong(&what))?),
        };
        Ok(Variable { name: name.to_owned(), values })
    }

    /// The value at a place of a range.
    pub fn at(first: i64, step: i64, index: u64) -> i64 {
        first.saturating_add(step.saturating_mul(i64::try_from(index).unwrap_or(i64::MAX)))
    }
}

fn range(first: &str, rest: &str) -> Result<Values, String> {
    let number = |text: &str| text.trim().parse::<i64>().map_err(|_| format!("'{text}' is no whole number"));
    let (last, step) = rest.split_once(':').map_or((rest, None), |(last, step)| (last, Some(step)));
    let (first, last, step) = (number(first)?, number(last)?, step.map_or(Ok(1), number)?);
    if step < 1 {
        return Err("the step is less than 1".to_owned());
    }
    if last < first {
        return Err(format!("{last} comes before {first}"));
    }
    let count = last.abs_diff(first) / step.unsigned_abs() + 1;
    if count > MOST_VALUES {
        return Err("the range is too long to search".to_owned());
    }
    Ok(Values::Range { first, step, count })
}

fn list(values: &str) -> Result<Vec<String>, String> {
    let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
    if values.iter().any(String::is_empty) {
        return Err("a value is empty".to_owned());
    }
    if let Some(twice) = values.iter().enumerate().find(|(index, value)| values[..*index].contains(value)) {
        return Err(format!("{} is there twice", twice.1));
    }
    Ok(values)
}

/// Whether a text can be a name.
pub fn is_name(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.is_empty()
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Checks that variables and command belong together: every variable is in the command, every `{NAME}` of the command is a
/// variable, and one range at most is searched.
///
/// # Errors
/// What does not belong, in a sentence.
pub fn check(variables: &[Variable], command: &[OsString], world_size: Option<&WorldSize>) -> Result<(), Error> {
    for (index, variable) in variables.iter().enumerate() {
        if variables[..index].iter().any(|other| other.name == variable.name) {
            return Err(Error::Vary { text: variable.name.clone(), what: "it is given twice".to_owned() });
        }
    }
    let of_world: Vec<&str> = world_size.iter().flat_map(|size| size.names()).collect();
    let asked: Vec<String> =
        command.iter().flat_map(|word| names(word)).chain(of_world.iter().map(|name| (*name).to_owned())).collect();
    if let Some(variable) = variables.iter().find(|variable| !asked.contains(&variable.name)) {
        return Err(Error::NotInCommand(variable.name.clone()));
    }
    if let Some(name) = asked.into_iter().find(|name| variables.iter().all(|variable| variable.name != *name)) {
        return Err(Error::UnknownName(name));
    }
    let ranges: Vec<&str> =
        variables.iter().filter(|v| matches!(v.values, Values::Range { .. })).map(|v| v.name.as_str()).collect();
    if let [first, second, ..] = ranges[..] {
        return Err(Error::TwoRanges(first.to_owned(), second.to_owned()));
    }
    if let (Some(searched), Some(size)) = (ranges.first().filter(|name| of_world.contains(name)), world_size) {
        let what = format!("has {searched}, which is a range: give it as a list, {searched}=A,B,C");
        return Err(Error::WorldSize { text: size.to_string(), what });
    }
    Ok(())
}

/// Every combination of the lists' values; the range has none yet.
pub fn combinations(variables: &[Variable]) -> Result<Vec<Assignment>, Error> {
    let mut all: Vec<Assignment> = vec![Vec::new()];
    for variable in variables {
        let Values::List(values) = &variable.values else { continue };
        if all.len().saturating_mul(values.len()) > MOST_COMBINATIONS {
            return Err(Error::TooMany);
        }
        let extended = |before: &Assignment| {
            let with = |value: &String| {
                let mut assignment = before.clone();
                assignment.push((variable.name.clone(), value.clone()));
                assignment
            };
            values.iter().map(with).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(extended).collect();
    }
    Ok(all)
}

/// The command with the values in their places.
pub fn substitute(command: &CommandLine, values: &Assignment) -> CommandLine {
    let value = |name: &str| values.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str());
    let word = |word: &OsString| match word.to_str() {
        Some(text) => pieces(text)
            .map(|piece| match piece {
                TemplatePiece::Text(text) => text,
                TemplatePiece::Name(name) => value(name).unwrap_or(name),
            })
            .collect::<String>()
            .into(),
        None => word.clone(),
    };
    command.words().iter().map(word).collect()
}

/// The names in a word; none in one that is not UTF-8.
fn names(word: &OsStr) -> Vec<String> {
    let name = |piece| match piece {
        TemplatePiece::Name(name) => Some(name.to_owned()),
        TemplatePiece::Text(_) => None,
    };
    word.to_str().map_or(Vec::new(), |text| pieces(text).filter_map(name).collect())
}

enum TemplatePiece<'a> {
    Text(&'a str),
    Name(&'a str),
}

/// Splits `--size={N}x{{M}}` into text and names; doubled braces around a name are text with single ones. All other braces are
/// text as they are: commands have them in JSON.
fn pieces(text: &str) -> impl Iterator<Item = TemplatePiece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if let Some((name, after)) = braced(rest, "{{", "}}") {
            // The inner pair, without the outer one.
            let piece = &rest[1..name.len() + 3];
            rest = after;
            return Some(TemplatePiece::Text(piece));
        }
        if let Some((name, after)) = braced(rest, "{", "}") {
            rest = after;
            return Some(TemplatePiece::Name(name));
        }
        let next = rest.char_indices().skip(1).find(|&(_, c)| c == '{').map_or(rest.len(), |(at, _)| at);
        let (piece, after) = rest.split_at(next);
        rest = after;
        Some(TemplatePiece::Text(piece))
    })
}

/// The name between an opening and a closing bracket at the start of a text, and what follows.
fn braced<'a>(text: &'a str, open: &str, close: &str) -> Option<(&'a str, &'a str)> {
    let (name, after) = text.strip_prefix(open)?.split_once(close)?;
    is_name(name).then_some((name, after))
}

#[cfg(test)]
mod tests;
