//! What people and programs read: each line of the command goes through here.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
pub use stalloc_common::figures::{bytes, count, parse_bytes, parse_memory, percent};
use stalloc_common::printable;

use crate::error::Error;

/// Prints text and a line end.
pub fn line(text: &str) -> Result<(), Error> {
    write_line(&printable(text))
}

/// Prints `stalloc: text` on standard error; nobody's concern if it cannot be.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "stalloc: {}", printable(text));
}

fn write_line(text: &str) -> Result<(), Error> {
    writeln!(io::stdout().lock(), "{text}").map_err(Error::Stdout)
}

/// Prints what to type next: a command, and in a few words what it is for.
pub fn next(command: &str, what_for: &str) -> Result<(), Error> {
    line(&format!("\nNext: {command}     ({what_for})"))
}

/// Prints exactly one JSON object.
pub fn json<T: Serialize>(value: &T) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Error::message(error.to_string()))?;
    write_line(&text)
}

/// Writes a file so that it is there as a whole or not at all.
pub fn whole_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Error> {
    stalloc_common::users_file(path, write).map_err(|error| Error::write(path, error))
}

/// Refuses a file in a folder that is not there: what goes into it takes minutes.
pub fn check_folder(file: Option<&Path>) -> Result<(), Error> {
    let folder = file.and_then(Path::parent).filter(|folder| *folder != Path::new("") && !folder.is_dir());
    folder.map_or(Ok(()), |folder| Err(Error::message(format!("--output: there is no folder {}", folder.display()))))
}

/// A size, up to another that is larger.
pub fn bytes_between(low: u64, high: Option<u64>) -> String {
    match high.filter(|&high| high > low) {
        Some(high) => format!("{} to {}", bytes(low), bytes(high)),
        None => bytes(low),
    }
}

/// Says why what was reserved is a range, where one of it is.
pub fn why_a_range(mut reserved: impl Iterator<Item = (u64, Option<u64>)>) -> Result<(), Error> {
    const WHY: &str = "A range: memory that other streams use comes back as recorded, or when the step ends, if the GPU is far behind.";
    if reserved.any(|(low, high)| high.is_some_and(|high| high > low)) { line(&format!("\n{WHY}")) } else { Ok(()) }
}

/// Says that what stays rises by so many bytes a step, with so many left.
pub fn rising(rise: u64, left: Option<i64>) -> String {
    let then = match left.and_then(|left| u64::try_from(left).ok()?.checked_div(rise)) {
        Some(steps) => format!("memory is full after about {} more", count(steps)),
        None => "the job needs more the longer it runs".to_owned(),
    };
    format!(
        "What stays rises by {} a step, as far as trials went. If that goes on, {then}: `stalloc fit --steps 30` goes further.",
        bytes(rise)
    )
}

/// Ranks in order, those that follow one another as a range: `rank 3`, `ranks 0 to 6, 9`.
pub fn ranks(ranks: &[u32]) -> String {
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for &rank in ranks {
        match spans.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => spans.push((rank, rank)),
        }
    }
    let span = |&(first, last): &(u32, u32)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first} to {last}"),
    };
    let name = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{name} {}", spans.iter().map(span).collect::<Vec<_>>().join(", "))
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
    fn ranks_that_follow_one_another_are_a_range() {
        assert_eq!(ranks(&[3]), "rank 3");
        assert_eq!(ranks(&[0, 1]), "ranks 0, 1");
        assert_eq!(ranks(&[0, 1, 2, 5, 7, 8, 9]), "ranks 0 to 2, 5, 7 to 9");
    }

    #[test]
    fn a_table_aligns_names_left_and_figures_right() {
        let mut table = Table::new(&["allocator", "peak"]);
        table.row(vec!["pytorch".into(), "9".into()]);
        table.row(vec!["x".into(), "1,000".into()]);
        assert_eq!(table.render(), "  allocator   peak\n  pytorch        9\n  x          1,000\n");
    }
}
