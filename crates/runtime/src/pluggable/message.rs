//! What a program is told when memory runs out: PyTorch's words where they hold, and numbers that add up.

use std::fmt::Write;

use stalloc_device::MemoryInfo;

/// Who holds how much of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holdings {
    /// Device memory behind the arena, bytes.
    pub arena: u64,
    /// The part of it that tensors use.
    pub arena_allocated: u64,
    /// Device memory of the fallback, bytes.
    pub fallback: u64,
    /// The part of it that tensors use.
    pub fallback_allocated: u64,
}

/// Bytes as PyTorch writes them.
fn bytes(size: u64) -> String {
    match size {
        0..=1024 => format!("{size} bytes"),
        1025..=0x10_0000 => format!("{:.2} KiB", size as f64 / 1024.0),
        0x10_0001..=0x4000_0000 => format!("{:.2} MiB", size as f64 / 1_048_576.0),
        _ => format!("{:.2} GiB", size as f64 / 1_073_741_824.0),
    }
}

/// The text of an OutOfMemoryError. What the device has is what is free, the arena's, the fallback's and others'.
pub fn out_of_memory(device: i32, wanted: u64, info: Option<MemoryInfo>, held: Holdings, limit: Option<u64>) -> String {
    let mut text = format!("CUDA out of memory. Tried to allocate {}.", bytes(wanted));
    let ours = held.arena.saturating_add(held.fallback);
    // Writing to a String cannot fail.
    if let Some(MemoryInfo { free, total }) = info {
        let others = total.saturating_sub(free).saturating_sub(ours);
        let _ = write!(
            text,
            " GPU {device} has a total capacity of {} of which {} is free. The rest: {} of stalloc's arena, {} of its \
             fallback, {} held by others (CUDA itself, libraries, other processes).",
            bytes(total),
            bytes(free),
            bytes(held.arena),
            bytes(held.fallback),
            bytes(others)
        );
    }
    if let Some(limit) = limit {
        let _ = write!(text, " {} allowed by torch.cuda.set_per_process_memory_fraction.", bytes(limit));
    }
    let idle = ours.saturating_sub(held.arena_allocated).saturating_sub(held.fallback_allocated);
    let _ = write!(
        text,
        " Of the arena {} is allocated to tensors, of the fallback {}; {} is reserved but unallocated.",
        bytes(held.arena_allocated),
        bytes(held.fallback_allocated),
        bytes(idle)
    );
    if held.fallback > held.arena / 8 && held.arena > 0 {
        text.push_str(
            " The fallback holds much: the program may have changed since its plan was made; record it again.",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of a text, bytes.
    fn figures(text: &str) -> Vec<f64> {
        let words: Vec<&str> = text.split_whitespace().map(|word| word.trim_end_matches(['.', ',', ';'])).collect();
        let unit = |word: &str| match word {
            "bytes" => Some(1.0),
            "KiB" => Some(1024.0),
            "MiB" => Some(1_048_576.0),
            "GiB" => Some(1_073_741_824.0),
            _ => None,
        };
        words.windows(2).filter_map(|pair| Some(pair[0].parse::<f64>().ok()? * unit(pair[1])?)).collect()
    }

    #[test]
    fn the_numbers_of_the_text_add_up() {
        let gib = 1 << 30;
        let info = Some(MemoryInfo { free: 2 * gib, total: 80 * gib });
        let held =
            Holdings { arena: 60 * gib, arena_allocated: 59 * gib, fallback: 16 * gib, fallback_allocated: 9 * gib };
        let text = out_of_memory(3, 5 * gib, info, held, None);
        let seen = figures(&text);
        let [wanted, total, free, arena, fallback, others, used, used_by_fallback, idle] = seen[..] else {
            panic!("{text}")
        };
        assert_eq!(wanted, (5 * gib) as f64);
        assert_eq!(total, free + arena + fallback + others);
        assert_eq!(idle, arena + fallback - used - used_by_fallback);
        assert!(text.starts_with("CUDA out of memory.") && text.contains("GPU 3"), "{text}");
    }

    #[test]
    fn a_device_that_cannot_be_asked_and_figures_that_contradict_each_other_still_make_a_text() {
        let held = Holdings { arena: u64::MAX, arena_allocated: 0, fallback: u64::MAX, fallback_allocated: 1 };
        assert!(out_of_memory(0, u64::MAX, None, held, Some(1)).starts_with("CUDA out of memory."));
        let info = Some(MemoryInfo { free: 9, total: 1 });
        assert!(out_of_memory(0, 0, info, held, None).contains("GPU 0"));
    }

    #[test]
    fn sizes_are_written_as_pytorch_writes_them() {
        assert_eq!(bytes(1024), "1024 bytes");
        assert_eq!(bytes(1536), "1.50 KiB");
        assert_eq!(bytes(20 << 20), "20.00 MiB");
        assert_eq!(bytes(5 << 30), "5.00 GiB");
    }
}
