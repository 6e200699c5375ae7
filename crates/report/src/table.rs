//! The tables of causes and of what helps: rows of text, whose conditions are over named facts.

use crate::sentence::Named;
use serde_json::Value;

/// The rows of a table: lines that begin with a word, the first line apart. Comments are left out.
pub fn rows(table: &'static str) -> impl Iterator<Item = (&'static str, Vec<(&'static str, &'static str)>)> {
    table.split("\n\n").filter_map(|block| {
        let mut lines = block.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let head = lines.next()?;
        Some((head, lines.map(|line| line.split_once(' ').unwrap_or((line, ""))).collect()))
    })
}

/// Whether conditions hold, all of a list: the name of a fact that is known and not false; `no NAME`: it is unknown or false;
/// `NAME=A|B*`: it is A, or begins with B; `SUM < SUM` (`<=`, `>`, `>=`), of numbers, facts and shares of facts (`10% needed`).
/// False where one of their facts is unknown.
pub fn hold(conditions: &str, known: &Named) -> bool {
    conditions.split(", ").filter(|one| !one.is_empty()).all(|one| holds(one.trim(), known) == Some(true))
}

fn holds(condition: &str, known: &Named) -> Option<bool> {
    type Compare = fn(&f64, &f64) -> bool;
    const COMPARE: [(&str, Compare); 4] = [(" >= ", f64::ge), (" <= ", f64::le), (" > ", f64::gt), (" < ", f64::lt)];
    for (sign, compare) in COMPARE {
        if let Some((left, right)) = condition.split_once(sign) {
            return Some(compare(&sum(left, known)?, &sum(right, known)?));
        }
    }
    if let Some(name) = condition.strip_prefix("no ") {
        return Some(matches!(known.get(name), None | Some(Value::Null | Value::Bool(false))));
    }
    let (name, wanted) = condition.split_once('=').unwrap_or((condition, ""));
    match known.get(name)? {
        Value::Null => None,
        Value::Bool(holds) => Some(*holds),
        Value::String(words) if !wanted.is_empty() => Some(wanted.split('|').any(|one| match one.strip_suffix('*') {
            Some(begins) => words.starts_with(begins),
            None => words == one,
        })),
        _ => Some(wanted.is_empty()),
    }
}

fn sum(terms: &str, known: &Named) -> Option<f64> {
    terms.split(" + ").try_fold(0.0, |sum, term| {
        let (share, name) = term
            .split_once("% ")
            .map_or(Some((1.0, term)), |(share, name)| Some((share.parse::<f64>().ok()? / 100.0, name)))?;
        Some(sum + share * name.parse().ok().or_else(|| known.get(name)?.as_f64())?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_holds_by_facts_and_not_by_one_that_is_missing() {
        let known = serde_json::json!({"size": 50, "all": 200, "is": true, "not": false, "kind": "list", "at": null});
        let known = known.as_object().unwrap();
        let yes = [
            "",
            "is",
            "size",
            "no not",
            "no at",
            "no nothing",
            "kind=dict|li*",
            "size >= 25% all",
            "size + 2 > 51",
            "size < all, is",
        ];
        assert_eq!(yes.map(|one| hold(one, known)), [true; 10]);
        let no = [
            "not",
            "at",
            "nothing",
            "no is",
            "kind=dict",
            "size > 25% all",
            "at < 3",
            "3 < nothing",
            "size < x% all",
            "is, at",
        ];
        assert_eq!(no.map(|one| hold(one, known)), [false; 10]);
    }
}
