//! The answer in a terminal: the verdict, the allocators, who holds the peak, and what to do.

use crate::facts::HolderBytes;
use crate::figures::{DeviceFigures, Figures, Fit, InputFigures, SiteBytes, Verdict};
use crate::sites::UNKNOWN;
use crate::words::{bytes, percent};

/// Lines of call sites that are shown at least, however small the terminal.
const FEWEST: usize = 5;
/// Lines around the call sites: verdict, table, advice.
const AROUND: usize = 26;

/// The size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Columns.
    pub width: usize,
    /// Lines.
    pub height: usize,
}

/// What the rows of stalloc say: a job that is served holds more while nobody needs the memory.
const TIGHT: &str =
    "stalloc's rows are those of a GPU that is shared or full; while there is room it holds more and remaps nothing.";

/// What is looked at where several things are: the device that ran out of memory, else the one that holds most.
pub fn chosen(figures: &Figures) -> Option<(&InputFigures, &DeviceFigures)> {
    let input = figures.inputs.first()?;
    let failed = input.devices.iter().find(|device| device.out_of_memory.is_some());
    let held = |device: &&DeviceFigures| {
        device.allocators.first().map_or(device.peak_allocated, |one| one.peak_reserved.max(device.peak_allocated))
    };
    // `max_by_key` takes the last of equals.
    Some((input, failed.or_else(|| input.devices.iter().rev().max_by_key(held))?))
}

/// The answer as text, each line at most as wide as the terminal where words can be broken.
pub fn text(figures: &Figures, screen: Screen) -> String {
    let Some((input, device)) = chosen(figures) else {
        return "The input holds no device with memory in use.\n".into();
    };
    let width = screen.width.clamp(40, 160);
    let mut out = Vec::new();
    let name = device.device_name.as_ref().map_or(String::new(), |name| format!(", {name}"));
    let of = if input.devices.len() > 1 { format!("{}, {}", input.name, device.name) } else { input.name.clone() };
    out.extend([format!("{of}{name}: {}", word(device.verdict, device.cause)), String::new()]);
    out.extend(wrapped(&device.headline, width, ""));
    if let Some(failed) = device.out_of_memory.as_ref().filter(|_| device.verdict == Verdict::TooLarge) {
        out.extend(wrapped(&failed.sentence, width, ""));
    }
    out.push(String::new());
    let is_judged = device.cause != Some("failed");
    if is_judged {
        out.extend(allocators(device, width));
    }
    if is_judged && device.allocators.iter().any(|one| one.allocator.starts_with("stalloc")) {
        out.extend(wrapped(TIGHT, width.saturating_sub(2), "  "));
    }
    let room = screen.height.saturating_sub(AROUND).max(FEWEST);
    // A text, or a recording without stacks, names no line.
    if device.peak_by_site.iter().any(|one| &*one.site != UNKNOWN) {
        out.extend([String::new(), format!("Who holds the {} at the peak", bytes(device.peak_allocated))]);
        out.extend(sites(&device.peak_by_site, device.peak_allocated, width, room));
    }
    if !device.holders.is_empty() {
        out.extend(["", "Who holds it in Python"].map(String::from));
        for one in device.holders.iter().take(2 * HOLDERS) {
            let share = percent(one.bytes as f64 / device.peak_allocated.max(1) as f64);
            let name = last(&one.holder, width.saturating_sub(27));
            out.push(format!("  {:>9}  {share:>12}  {name}", bytes(one.bytes)));
        }
    }
    if let Some(growth) = &device.growth {
        out.extend(["", "What stays, by the line that allocates it"].map(String::from));
        out.extend(sites(&growth.sites, growth.bytes, width, FEWEST));
    }
    if !device.advice.is_empty() {
        out.extend(["", "What to do"].map(String::from));
        for (i, advice) in device.advice.iter().enumerate() {
            let mut lines = wrapped(&advice.text.replace('`', ""), width.saturating_sub(5), "     ");
            if let Some(first) = lines.first_mut() {
                *first = format!("  {}. {}", i + 1, first.trim_start());
            }
            out.extend(lines);
            // A command is never broken: it is there to be copied.
            out.extend(advice.command.iter().map(|command| format!("       {command}")));
        }
    }
    let others = input.devices.len().saturating_sub(1);
    if others > 0 {
        out.push(String::new());
        out.extend(devices(input, device, width));
    }
    out.push(String::new());
    out.join("\n")
}

/// The answer in about ten lines: the verdict, where it failed, who holds the most, and what to do.
pub fn summary(figures: &Figures, width: usize) -> String {
    let Some((_, device)) = chosen(figures) else { return String::new() };
    let width = width.clamp(60, 160);
    let mut out = wrapped(&device.headline, width, "  ");
    if let Some(failed) = &device.out_of_memory
        && failed.size > 0
    {
        let at = failed.site.as_ref().map_or(String::new(), |site| format!(" at {site}"));
        out.push(format!("  It asked for {}{at}.", bytes(failed.size)));
    }
    // The largest, and the one that the answer is about.
    let decides = |one: &HolderBytes| device.known.get("holder").is_some_and(|holder| *holder == *one.holder);
    for (_, one) in device.holders.iter().enumerate().filter(|(at, one)| *at < HOLDERS || decides(one)) {
        let site = one.site.as_ref().map_or(String::new(), |site| format!(", allocated at {site}"));
        let share = percent(one.bytes as f64 / device.peak_allocated.max(1) as f64);
        out.push(format!("  {:>9} {share:>7}  {}{site}", bytes(one.bytes), one.holder));
    }
    for advice in device.advice.iter().take(1) {
        out.extend(wrapped(&advice.text.replace('`', ""), width, "  "));
        out.extend(advice.command.iter().map(|command| format!("      {command}")));
    }
    out.push(String::new());
    out.join("\n")
}

/// Holders that a summary names.
const HOLDERS: usize = 4;

fn word(verdict: Verdict, cause: Option<&str>) -> &'static str {
    match verdict {
        Verdict::Fragmentation => "fragmentation",
        Verdict::Growth => "memory grows",
        Verdict::TooLarge => "too large",
        Verdict::Healthy => "healthy",
        Verdict::Unknown if cause == Some("failed") => "failed",
        Verdict::Unknown => "cut off",
    }
}

fn allocators(device: &DeviceFigures, width: usize) -> Vec<String> {
    let failed = device.out_of_memory.is_some();
    let mut rows = vec![vec!["".to_owned(), "reserved".into(), "empty".into(), "used".into()]];
    if failed {
        rows[0].push("this GPU".into());
    }
    let grows = device.growth.is_some();
    rows[0].extend(
        ["40 GB", "80 GB", "141 GB"].map(|card| if grows { format!("{card} full at") } else { card.to_owned() }),
    );
    for one in &device.allocators {
        let mut row = vec![one.label.to_owned(), bytes(one.peak_reserved), bytes(one.wasted), percent(one.efficiency)];
        if failed {
            let happened = one.allocator == "actual";
            row.push(if happened { "failed" } else { one.same_device.map_or("", fit) }.to_owned());
        }
        row.extend(["40", "80", "141"].map(|card| match one.dies_at_step.get(card) {
            Some(step) => format!("step {step}"),
            None => one.fits.get(card).map_or("", |one| fit(*one)).to_owned(),
        }));
        rows.push(row);
    }
    columns(&folded(&rows), width)
}

/// The same with rows that agree as one, under the name of the first.
fn folded(rows: &[Vec<String>]) -> Vec<Vec<String>> {
    let mut out: Vec<Vec<String>> = Vec::new();
    for row in rows {
        let more = rows.iter().filter(|one| one[1..] == row[1..]).count() - 1;
        let name = if more > 0 { format!("{} and {more} more", row[0]) } else { row[0].clone() };
        if out.iter().all(|one| one[1..] != row[1..]) {
            out.push([vec![name], row[1..].to_vec()].concat());
        }
    }
    out
}

fn fit(fit: Fit) -> &'static str {
    match fit {
        Fit::Yes => "fits",
        Fit::Tight => "just",
        Fit::No => "no",
        Fit::Unknown => "?",
    }
}

/// The first column to the left, the others to the right.
/// A table; in a narrow terminal the last columns are left out.
fn columns(rows: &[Vec<String>], room: usize) -> Vec<String> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |i: usize| rows.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let mut widths: Vec<usize> = (0..count).map(width).collect();
    while widths.len() > 1 && widths.iter().map(|width| width + 2).sum::<usize>() > room {
        widths.pop();
    }
    rows.iter()
        .map(|row| {
            let mut line = String::from("  ");
            for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let padding = " ".repeat(width - cell.chars().count());
                line.push_str(&if i == 0 { format!("{cell}{padding}") } else { format!("  {padding}{cell}") });
            }
            line.trim_end().to_owned()
        })
        .collect()
}

fn sites(list: &[SiteBytes], all: u64, width: usize, room: usize) -> Vec<String> {
    let shown = if list.len() <= room { list.len() } else { room - 1 };
    let mut lines: Vec<String> = list
        .iter()
        .take(shown)
        .map(|one| {
            let share = percent(one.bytes as f64 / all.max(1) as f64);
            let blocks = if one.blocks == 1 { "1 block".to_owned() } else { format!("{} blocks", one.blocks) };
            let line = format!("  {:>9}  {:>12}  {}  ({blocks})", bytes(one.bytes), share, one.site);
            // The site's end, its line and function, says more than its folder.
            match line.chars().count().checked_sub(width) {
                None | Some(0) => line,
                Some(_) => {
                    format!("  {:>9}  {:>12}  {}", bytes(one.bytes), share, last(&one.site, width.saturating_sub(27)))
                }
            }
        })
        .collect();
    if shown < list.len() {
        let rest: u64 = list[shown..].iter().map(|one| one.bytes).fold(0, u64::saturating_add);
        lines.push(format!("  {:>9}  in {} more", bytes(rest), list.len() - shown));
    }
    lines
}

/// The last characters of a text that is too long.
fn last(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let rest: String = text.chars().skip(count - width.saturating_sub(1)).collect();
    format!("\u{2026}{rest}")
}

fn devices(input: &InputFigures, shown: &DeviceFigures, width: usize) -> Vec<String> {
    let mut rows = vec![["", "verdict", "allocated", "reserved"].map(str::to_owned).to_vec()];
    for device in input.devices.iter().filter(|device| device.name != shown.name) {
        let reserved = device.allocators.first().map_or(0, |one| one.peak_reserved);
        rows.push(vec![
            device.name.clone(),
            word(device.verdict, device.cause).into(),
            bytes(device.peak_allocated),
            bytes(reserved),
        ]);
    }
    let many = if rows.len() == 2 { "" } else { "s" };
    let mut lines = vec![format!("{} other device{many} (--device N, --rank R)", rows.len() - 1)];
    lines.extend(columns(&rows, width).into_iter().take(18));
    lines
}

/// Text broken at spaces into lines of at most `width` characters; a longer word has a line of its own.
fn wrapped(text: &str, width: usize, indent: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    // A figure stays with its unit.
    let words = join_figures(text);
    for word in words {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(format!("{indent}{line}"));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&word);
    }
    if !line.is_empty() {
        lines.push(format!("{indent}{line}"));
    }
    lines
}

fn join_figures(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let unit = ["B", "KiB", "MiB", "GiB", "TiB", "%"]
            .iter()
            .any(|unit| word.trim_end_matches(['.', ',', ';', ')']) == *unit);
        match words.last_mut().filter(|last| unit && last.ends_with(|c: char| c.is_ascii_digit())) {
            Some(last) => {
                last.push(' ');
                last.push_str(word);
            }
            None => words.push(word.to_owned()),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_words_and_figures_keep_their_units() {
        assert_eq!(wrapped("it held 12 GiB of 15.5 MiB.", 11, "  "), ["  it held", "  12 GiB of", "  15.5 MiB."]);
        assert_eq!(wrapped("a", 0, ""), ["a"]);
        assert_eq!(last("long/path/train.py:7 forward", 12), "\u{2026}y:7 forward");
        assert_eq!(last("a", 12), "a");
    }
}
