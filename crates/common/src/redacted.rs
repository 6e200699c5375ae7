//! A command line without its secrets: what is written is sent to others, and what is printed is kept in logs.

use std::ffi::OsString;
use std::fmt;

/// A command as it was typed. Its words are for what starts it; whatever is printed or written of it is [`redacted`].
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CommandLine(Vec<OsString>);

impl CommandLine {
    /// The words, secrets too.
    pub fn words(&self) -> &[OsString] {
        &self.0
    }
}

impl<T: Into<OsString>> FromIterator<T> for CommandLine {
    fn from_iter<I: IntoIterator<Item = T>>(words: I) -> Self {
        CommandLine(words.into_iter().map(Into::into).collect())
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.0.iter().map(|word| word.to_string_lossy()).collect();
        out.write_str(&redacted(words.iter().map(AsRef::as_ref)))
    }
}

impl fmt::Debug for CommandLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// What stands for a secret.
const HIDDEN: &str = "***";

/// Names of options and variables whose values are secrets, as parts of a name in lower case without `-` and `_`.
const SECRET_NAMES: [&str; 11] = [
    "token",
    "secret",
    "passw",
    "apikey",
    "accesskey",
    "privatekey",
    "credential",
    "authkey",
    "signature",
    "bearer",
    "cookie",
];

/// What well-known tokens begin with; each is followed by letters and digits.
const PREFIXES: [&str; 15] = [
    "hf_",
    "sk-",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "ASIA",
    "eyJ",
    "AIza",
    "nvapi-",
    "pypi-",
];

/// Characters of a token behind its prefix, at least.
const PREFIXED: usize = 12;

/// Characters of a token of which nothing else is known, at least.
const UNKNOWN: usize = 24;

/// Bytes of a command that are kept.
const MOST_BYTES: usize = 16 << 10;

/// The words of a command as one line, quoted as a shell would read them, without what looks like a secret: values of options and
/// variables with such names, tokens, passwords in addresses; the user's own folder, which is often a name, is `~`. Very long commands are cut.
pub fn redacted<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let (own_folder, mut line) = (own_folder(), String::new());
    let (mut hides_next, mut cut) = (false, 0_usize);
    for word in words {
        if line.len() > MOST_BYTES {
            cut += 1;
            continue;
        }
        let shown = if hides_next && !word.starts_with('-') { HIDDEN.to_owned() } else { shown(word, &own_folder) };
        // `--token VALUE`; what has no dash is a file or a value.
        hides_next = word.starts_with('-') && !word.contains('=') && is_secret_name(word);
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&quoted(&shown));
    }
    if line.len() > MOST_BYTES {
        let end = (0..=MOST_BYTES).rev().find(|&end| line.is_char_boundary(end)).unwrap_or(0);
        line.truncate(end);
        line.push_str(&format!("... ({cut} more words)"));
    }
    line
}

/// Lines of a program's output without what looks like a secret, as [`redacted`], word by word.
pub fn redacted_line(line: &str) -> String {
    let (own_folder, mut hides_next, mut out) = (own_folder(), false, String::with_capacity(line.len()));
    for piece in line.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end();
        out.push_str(&if hides_next && !word.starts_with('-') { HIDDEN.to_owned() } else { shown(word, &own_folder) });
        out.push_str(&piece[word.len()..]);
        hides_next = word.starts_with('-') && !word.contains('=') && is_secret_name(word);
    }
    out
}

/// A word without its secrets, and with `~` for the user's own folder.
fn shown(word: &str, own_folder: &str) -> String {
    match word.split_once('=') {
        Some((name, value)) if !value.is_empty() && is_secret_name(name) => format!("{name}={HIDDEN}"),
        Some((name, value)) => format!("{name}={}", without_tokens(&with_tilde(value, own_folder))),
        None => without_tokens(&with_tilde(word, own_folder)),
    }
}

fn own_folder() -> String {
    std::env::var("HOME").unwrap_or_default()
}

/// A path below the user's own folder as a shell would read it; the root has no name.
fn with_tilde(word: &str, own_folder: &str) -> String {
    match word.strip_prefix(own_folder) {
        Some(rest) if own_folder.len() > 1 && (rest.is_empty() || rest.starts_with('/')) => format!("~{rest}"),
        _ => word.to_owned(),
    }
}

fn is_secret_name(name: &str) -> bool {
    let plain: String = name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    // Numbers of tokens are no secrets: `--max-tokens 512`, `--tokenizer gpt2`, `--token-count`.
    let is_about_text = ["tokens", "tokeniz", "tokencount", "tokenlen", "tokentype", "tokenid", "tokendrop"];
    SECRET_NAMES.iter().any(|secret| plain.contains(secret)) && !is_about_text.iter().any(|text| plain.contains(text))
}

/// A text in which addresses have no passwords, and tokens are hidden.
fn without_tokens(text: &str) -> String {
    let text = without_password(text);
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+');
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (part, behind) = rest.split_at(end);
        out.push_str(if is_token(part) { HIDDEN } else { part });
        let next = behind.find(is_part).unwrap_or(behind.len());
        out.push_str(&behind[..next]);
        rest = &behind[next..];
    }
    out
}

fn is_token(part: &str) -> bool {
    if PREFIXES.iter().any(|prefix| part.strip_prefix(prefix).is_some_and(|rest| rest.len() >= PREFIXED)) {
        return true;
    }
    // Letters of both cases and digits all mixed up are no name that a person wrote.
    let changes = part.as_bytes().windows(2).filter(|pair| kind(pair[0]) != kind(pair[1])).count();
    let has = |test: fn(&u8) -> bool| part.bytes().any(|byte| test(&byte));
    let is_mixed = has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase) && has(u8::is_ascii_digit);
    part.len() >= UNKNOWN && is_mixed && changes * 3 > part.len()
}

fn kind(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => 0,
        b'A'..=b'Z' => 1,
        b'a'..=b'z' => 2,
        _ => 3,
    }
}

/// `scheme://user:password@host` without the password.
fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let end = rest.find('/').unwrap_or(rest.len());
    match rest[..end].rsplit_once('@') {
        Some((who, host)) => {
            let user = who.split_once(':').map_or(HIDDEN.to_owned(), |(user, _)| format!("{user}:{HIDDEN}"));
            format!("{scheme}://{user}@{host}{}", &rest[end..])
        }
        None => text.to_owned(),
    }
}

/// A word as a shell would read it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "@%+=:,./-_*~".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\"'\"'")),
    }
}

#[cfg(test)]
mod tests;
