//! What people and programs read on standard output.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde::Serialize;

use crate::error::Error;

/// Prints text and a line end.
pub fn line(text: &str) -> Result<(), Error> {
    writeln!(std::io::stdout().lock(), "{text}").map_err(Error::Stdout)
}

/// Prints exactly one JSON object.
pub fn json<T: Serialize>(value: &T) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Error::message(error.to_string()))?;
    line(&text)
}

/// Writes a file so that it is there as a whole or not at all. What is no file (a terminal, a pipe) is written as it is.
pub fn whole_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Error> {
    if path.metadata().is_ok_and(|about| !about.is_file()) {
        let written = File::create(path).and_then(|mut file| write(&mut file));
        return written.map_err(|error| Error::write(path, error));
    }
    // Where a link leads is replaced, not the link.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let beside = target.with_file_name(name);
    let written = File::create(&beside).and_then(|file| {
        let mut out = BufWriter::new(file);
        write(&mut out)?;
        out.into_inner()?.sync_all()?;
        std::fs::rename(&beside, &target)
    });
    written.map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        Error::write(path, error)
    })
}

/// A number of bytes for people: `812 B`, `3.1 MiB`, `51.53 GiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if unit >= 2 { 2 } else { 1 };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// Reads what [`bytes`] writes, and plain numbers: `80GiB`, `24 GB`, `1073741824`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1u64 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        other => return Err(format!("unknown unit '{other}'; bytes, or a unit such as MiB, GiB or GB")),
    };
    let wrong = || format!("'{text}' is no number of bytes; write for example 80GiB");
    let bytes = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(factor),
        Err(_) if number.contains('.') => number.parse::<f64>().ok().map(|value| value * factor as f64).and_then(whole),
        Err(_) => None,
    };
    bytes.ok_or_else(wrong)
}

/// A number of bytes as an integer, if one holds it.
fn whole(bytes: f64) -> Option<u64> {
    (bytes < u64::MAX as f64).then_some(bytes as u64)
}

/// What a program saw in place of a value that a dry run does not compute.
pub fn answer(answer: Option<&str>) -> String {
    answer.map_or("zeros".to_owned(), |answer| format!("answered ({answer})"))
}

/// A count with thousands separated: `52,310`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A share as a percentage: `97.3 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A table for people: columns padded to their widest cell, the first to the left, the others to the right.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with a header.
    pub fn new(header: &[&str]) -> Self {
        Table { rows: vec![header.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Prints it, indented by two spaces.
    pub fn print(&self) -> Result<(), Error> {
        line(self.render().trim_end_matches('\n'))
    }

    fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::new();
        for row in &self.rows {
            let mut text = String::from(" ");
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let padding = " ".repeat(width - cell.chars().count());
                let (before, after) = if column == 0 { ("", padding.as_str()) } else { (padding.as_str(), "") };
                text.push_str(&format!(" {before}{cell}{after} "));
            }
            out.push_str(text.trim_end());
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_the_unit_that_keeps_them_short() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.0 KiB");
        assert_eq!(bytes((1 << 20) - 1), "1.0 MiB");
        assert_eq!(bytes(3 << 29), "1.50 GiB");
        assert_eq!(bytes(u64::MAX), "16.00 EiB");
    }

    #[test]
    fn sizes_are_read_with_and_without_units() {
        assert_eq!(parse_bytes("80GiB"), Ok(80 << 30));
        assert_eq!(parse_bytes("1.5 GiB"), Ok(3 << 29));
        assert_eq!(parse_bytes("24 GB"), Ok(24_000_000_000));
        assert_eq!(parse_bytes("512"), Ok(512));
        for wrong in ["", "GiB", "12 parsec", "-1", "99999999999999999999", "1.2.3"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn counts_have_their_thousands_separated() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(52_310), "52,310");
        assert_eq!(count(1_000_000), "1,000,000");
    }

    #[test]
    fn a_table_aligns_names_left_and_figures_right() {
        let mut table = Table::new(&["allocator", "peak"]);
        table.row(vec!["pytorch".into(), "9".into()]);
        table.row(vec!["x".into(), "1,000".into()]);
        assert_eq!(table.render(), "  allocator   peak\n  pytorch        9\n  x          1,000\n");
    }
}
