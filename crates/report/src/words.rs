//! Figures in words.

/// A number of bytes for people, in binary units as PyTorch's messages are.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    // What would be written as 1024 is written as 1 of the next unit.
    while scaled >= 1023.5 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let digits = match unit {
        0 => 0,
        3.. if scaled < 10.0 => 2,
        3.. => 1,
        _ if scaled < 100.0 => 1,
        _ => 0,
    };
    format!("{scaled:.digits$} {}", UNITS[unit])
}

/// A share as a percentage; never rounds up to 100 %, nor down to nothing.
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    if value > 0.0 && value < 0.1 {
        return "under 0.1 %".into();
    }
    let digits = if (99.95..100.0).contains(&value) { 2 } else { 1 };
    let scale = 10f64.powi(digits);
    let text = format!("{:.*}", digits as usize, (value * scale).floor() / scale);
    let short = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{short} %")
}

/// A share in words that never say more than it is.
pub fn most_of(part: u64, all: u64) -> String {
    let share = part as f64 / all.max(1) as f64;
    let words = if share > 0.5 { "Most of it" } else { "The largest part" };
    format!("{words}, {} ({})", bytes(part), percent(share))
}
