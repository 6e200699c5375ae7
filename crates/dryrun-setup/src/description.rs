//! A GPU as the user describes it: `sm=132,memory=80GiB,capability=9.0,name=mine`, or `like=h100-80gb,memory=94GiB`.

use crate::presets::{GENERIC, preset};
use crate::{Gpu, MIB, SetupError};

/// The most memory that a stand-in has, bytes: 1 TiB of addresses is set aside for each device.
const MOST_MEMORY: u64 = 1 << 40;

/// The longest name, bytes: CUDA's structure has room for 256.
const LONGEST_NAME: usize = 200;

/// Reads a description.
///
/// # Errors
/// [`SetupError::Description`], with what is wrong and how to write it.
pub(crate) fn parse(text: &str) -> Result<Gpu, SetupError> {
    let wrong = |what: String| SetupError::Description { text: text.to_owned(), what };
    let mut pairs = Vec::new();
    for piece in text.split(',') {
        let (key, value) = piece.split_once('=').ok_or_else(|| wrong(format!("'{piece}' has no value")))?;
        let (key, value) = (key.trim(), value.trim());
        if pairs.iter().any(|&(other, _)| other == key) {
            return Err(wrong(format!("{key} is there twice")));
        }
        pairs.push((key, value));
    }
    let get = |key: &str| pairs.iter().find(|(name, _)| *name == key).map(|&(_, value)| value);
    if let Some((key, _)) = pairs.iter().find(|(key, _)| !KEYS.contains(key)) {
        return Err(wrong(format!("'{key}' is not known")));
    }
    let mut gpu = match get("like") {
        Some(name) => preset(name).ok_or_else(|| wrong(format!("no preset is called '{name}'")))?,
        None => {
            if let Some(missing) = ["sm", "memory", "capability"].into_iter().find(|key| get(key).is_none()) {
                return Err(wrong(format!("{missing} is missing (or like=PRESET to start from a preset)")));
            }
            GENERIC
        }
    };
    if let Some(value) = get("capability") {
        let parsed = value.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        let capability: (u32, u32) = parsed
            .filter(|&(major, minor)| (5..100).contains(&major) && minor < 10)
            .ok_or_else(|| wrong(format!("'{value}' is no compute capability, such as 9.0")))?;
        if get("like").is_none() {
            let limits = Gpu::limits(capability);
            gpu.threads_per_multiprocessor = limits.threads_per_multiprocessor;
            gpu.blocks_per_multiprocessor = limits.blocks_per_multiprocessor;
            gpu.shared_per_multiprocessor = limits.shared_per_multiprocessor;
            gpu.shared_per_block = limits.shared_per_block;
            // The large cards of each generation have minor number 0.
            gpu.nvlink = capability.1 == 0;
        }
        gpu.capability = capability;
    }
    let yes_or_no = |key: &str, otherwise| match get(key) {
        None => Ok(otherwise),
        Some("yes") => Ok(true),
        Some("no") => Ok(false),
        Some(value) => Err(wrong(format!("{key}={value}: yes or no"))),
    };
    gpu.nvlink = yes_or_no("nvlink", gpu.nvlink)?;
    gpu.pages = yes_or_no("pages", gpu.pages)?;
    if let Some(value) = get("sm") {
        let of = gpu.multiprocessors;
        gpu.multiprocessors = value
            .parse()
            .ok()
            .filter(|count| (1..=10_000).contains(count))
            .ok_or_else(|| wrong(format!("'{value}' is no number of multiprocessors, such as 132")))?;
        gpu.peak = u32::try_from(u64::from(gpu.peak) * u64::from(gpu.multiprocessors) / u64::from(of.max(1)))
            .unwrap_or(gpu.peak)
            .max(1);
    }
    if let Some(value) = get("memory") {
        gpu.total = bytes(value)
            .filter(|bytes| (64 * MIB..=MOST_MEMORY).contains(bytes))
            .ok_or_else(|| wrong(format!("'{value}' is no size of 64 MiB to 1 TiB, such as 80GiB or 24217MiB")))?;
    }
    if let Some(value) = get("context") {
        gpu.context = bytes(value).ok_or_else(|| wrong(format!("'{value}' is no size, such as 500MiB")))?;
        gpu.context_range = (gpu.context, gpu.context);
    } else if gpu.context_range.1 > gpu.total / 4 {
        // A toy: what a card of this size would be left with is not known.
        gpu.context = gpu.total / 16;
        gpu.context_range = (gpu.context, gpu.context);
    }
    if gpu.context_range.1 >= gpu.total {
        return Err(wrong(format!("a context of {} bytes leaves nothing of the memory", gpu.context)));
    }
    let name = get("name").unwrap_or("described GPU");
    if name.is_empty() || name.len() > LONGEST_NAME || name.contains(|c: char| c.is_control()) {
        return Err(wrong("the name is empty, too long or has control characters".to_owned()));
    }
    // Once for each description that a process is given; the presets are constants, which saves every user a lifetime.
    gpu.product = name.to_owned().leak();
    gpu.name = text.to_owned().leak();
    Ok(gpu)
}

/// What a description can say.
const KEYS: [&str; 8] = ["like", "sm", "memory", "capability", "context", "nvlink", "pages", "name"];

/// A number of bytes with a unit: `80GiB`, `80GB`, `24217MiB`.
fn bytes(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        "tib" | "t" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return None,
    };
    match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(factor),
        Err(_) => number.parse::<f64>().ok().map(|value| value * factor as f64).filter(|&v| v < 1e18).map(|v| v as u64),
    }
}
