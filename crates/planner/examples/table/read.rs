//! What the table reads: instances, where traces are, and what the process has used.

use std::path::{Path, PathBuf};

use stalloc_planner::{Buffer, Instance};

/// An instance without alignments: a header that names `lower`, `upper` and `size`, then a line for each buffer.
pub fn csv(path: &Path) -> Result<Instance, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split(',').map(str::trim).collect();
    let column = |name: &str| header.iter().position(|h| *h == name).ok_or(format!("no column {name}"));
    let (lower, upper, size) = (column("lower")?, column("upper")?, column("size")?);
    let mut buffers = Vec::new();
    for line in lines.filter(|l| !l.trim().is_empty()) {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let field = |k: usize| fields.get(k).and_then(|f| f.parse().ok()).ok_or(format!("not a number in {line:?}"));
        let (lower, upper, size) = (field(lower)?, field(upper)?, field(size)?);
        buffers.push(Buffer { lower, upper, size, alignment: 1, fixed: None });
    }
    Ok(Instance { buffers, period: None, ..Instance::default() })
}

/// The traces in a folder, by name; none if there is no such folder.
pub fn traces(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    paths.sort();
    paths
}

/// What to call a trace: its file's name up to the first dot.
pub fn name(path: &Path) -> String {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    file.split('.').next().unwrap_or_default().to_owned()
}

/// Seconds of CPU that this process has used, where the system says so; what it says is in hundredths.
pub fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Fields after the command, which is in brackets and may hold anything: user time is the 12th, system time next.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// The most memory that this process ever held, in KiB, where the system says so.
pub fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
