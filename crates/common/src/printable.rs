//! Text of a recording or a path, for a terminal.

use std::borrow::Cow;

/// `text` as it can be printed: what a terminal would take for a command, or hide, is spelt out (`\u{1b}`). Lines stay lines.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_command) {
        return Cow::Borrowed(text);
    }
    let spelt = |character: char| match is_command(character) {
        true => character.escape_unicode().to_string(),
        false => character.into(),
    };
    Cow::Owned(text.chars().map(spelt).collect())
}

/// Control characters, and those that turn the direction of the text around them.
fn is_command(character: char) -> bool {
    let turns = matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || character.is_control() && !matches!(character, '\n' | '\t')
}

#[cfg(test)]
mod tests;
