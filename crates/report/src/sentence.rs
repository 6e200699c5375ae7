//! Sentences as templates over named facts: one that needs a fact that is unknown is not said.

use serde_json::{Map, Value};

use crate::words::bytes;

/// Facts by their names; `null` is unknown.
pub type Named = Map<String, Value>;

/// A template with its facts filled in; `None` where one of them is unknown.
///
/// `{name}` is a fact: bytes, or words as they are; `{#name}` a count; `{^name}` begins with a capital letter. `<|...|>` is left out where
/// one of its own facts is unknown.
pub fn filled(template: &str, known: &Named) -> Option<String> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("<|") {
        let (part, after) = after.split_once("|>")?;
        text.push_str(&plain(before, known)?);
        text.push_str(&plain(part, known).unwrap_or_default());
        rest = after;
    }
    Some(text + &plain(rest, known)?)
}

/// The first of some templates that can be filled.
pub fn first(templates: &[&str], known: &Named) -> Option<String> {
    templates.iter().find_map(|template| filled(template, known))
}

fn plain(template: &str, known: &Named) -> Option<String> {
    let mut parts = template.split('{');
    let mut text = parts.next()?.to_owned();
    for part in parts {
        let (name, after) = part.split_once('}')?;
        let fact = |name: &str| known.get(name);
        text.push_str(&match name.split_at(name.len().min(1)) {
            ("#", name) => fact(name)?.as_u64()?.to_string(),
            ("^", name) => capital(fact(name)?.as_str()?),
            _ => match fact(name)? {
                Value::String(words) => words.clone(),
                number => bytes(number.as_u64()?),
            },
        });
        text.push_str(after);
    }
    Some(text)
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_said_only_where_all_that_it_needs_is_known() {
        let known = serde_json::json!({"size": 2048, "who": "a list", "times": 3, "at": null});
        let known = known.as_object().unwrap();
        assert_eq!(
            filled("{^who} of {size}, {#times} times<|, at {at}|>.", known).unwrap(),
            "A list of 2.0 KiB, 3 times."
        );
        assert_eq!(filled("It is at {at}.", known), None);
        assert_eq!(first(&["{nothing}", "x[:, {who}]"], known).unwrap(), "x[:, a list]");
        for odd in ["{", "{size", "<|", "{}", "{#who}", "{^size}"] {
            assert_eq!(filled(odd, known), None, "{odd}");
        }
    }
}
