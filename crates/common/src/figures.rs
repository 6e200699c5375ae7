//! Numbers as people read and write them.

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

/// Bytes of a GPU's memory, in words like `24GB`: a number without a unit is no such memory.
pub fn parse_memory(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes if bytes < 1 << 20 => Err(format!("'{text}' is {bytes} bytes; with a unit: {}GB", text.trim())),
        bytes => Ok(bytes),
    }
}

/// A number of bytes as an integer, if one holds it.
fn whole(bytes: f64) -> Option<u64> {
    (bytes < u64::MAX as f64).then_some(bytes as u64)
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

#[cfg(test)]
mod tests;
