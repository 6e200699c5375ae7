//! How many ranks a job has.

use std::fmt;
use std::str::FromStr;

use stalloc_launcher::MOST_RANKS;

use crate::fit::values::{Assignment, is_name};

/// Numbers and names of lists, multiplied: `64`, `{TP}x{PP}x{DP}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorldSize(Vec<Factor>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Factor {
    Number(u32),
    Name(String),
}

/// What is no world size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a number of ranks, as in 64, or names of --vary, as in {{TP}}x{{PP}}x{{DP}}")]
pub struct Invalid;

impl FromStr for WorldSize {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let factor = |text: &str| match text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            Some(name) if is_name(name) => Ok(Factor::Name(name.to_owned())),
            Some(_) => Err(Invalid),
            None => text.parse().ok().filter(|&number| number > 0).map(Factor::Number).ok_or(Invalid),
        };
        // A name may have an x in it.
        let mut factors: Vec<String> = vec![String::new()];
        let mut is_in_name = false;
        for c in text.chars() {
            is_in_name = (is_in_name || c == '{') && c != '}';
            match factors.last_mut() {
                Some(last) if is_in_name || c != 'x' => last.push(c),
                _ => factors.push(String::new()),
            }
        }
        factors.iter().map(|text| factor(text.trim())).collect::<Result<_, _>>().map(WorldSize)
    }
}

impl fmt::Display for WorldSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, factor) in self.0.iter().enumerate() {
            let times = if index > 0 { "x" } else { "" };
            match factor {
                Factor::Number(number) => write!(f, "{times}{number}")?,
                Factor::Name(name) => write!(f, "{times}{{{name}}}")?,
            }
        }
        Ok(())
    }
}

impl WorldSize {
    /// The names in it.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|factor| match factor {
            Factor::Number(_) => None,
            Factor::Name(name) => Some(name.as_str()),
        })
    }

    /// The number of ranks with these values; none if that is no number of ranks.
    pub fn of(&self, values: &Assignment) -> Option<u32> {
        let value = |factor: &Factor| match factor {
            Factor::Number(number) => Some(*number),
            Factor::Name(name) => values.iter().find(|(other, _)| other == name)?.1.parse().ok(),
        };
        self.0
            .iter()
            .try_fold(1_u32, |ranks, factor| ranks.checked_mul(value(factor)?))
            .filter(|ranks| (1..=MOST_RANKS).contains(ranks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_multiplied() {
        let values: Assignment =
            [("TP", "2"), ("PxP", "4"), ("BAD", "full"), ("ZERO", "0")].map(|(n, v)| (n.into(), v.into())).to_vec();
        let of = |text: &str| text.parse::<WorldSize>().unwrap().of(&values);
        assert_eq!(of("64"), Some(64));
        assert_eq!(of("{TP}x{PxP}x3"), Some(24));
        assert_eq!([of("{BAD}"), of("{ZERO}"), of("{NONE}"), of("4000000000x{TP}")], [None; 4]);
        assert_eq!("{TP}x{PxP}x3".parse::<WorldSize>().unwrap().to_string(), "{TP}x{PxP}x3");
        for text in ["", "0", "x", "8x", "-1", "1.5", "{}", "{TP", "TP", "{T P}", "99999999999"] {
            assert_eq!(text.parse::<WorldSize>(), Err(Invalid), "{text}");
        }
    }
}
