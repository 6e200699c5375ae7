//! The GPUs that a dry run can stand in for: presets, and what the user describes.

use crate::SetupError;
use crate::presets::GPUS;

/// Bytes in a mebibyte.
pub const MIB: u64 = 1 << 20;
pub(crate) const KIB: u32 = 1 << 10;

/// A model of GPU, as the CUDA runtime would describe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gpu {
    /// The preset's name on the command line, or the description that the user gave.
    pub name: &'static str,
    /// The name that the driver reports.
    pub product: &'static str,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Memory that the driver reports to programs (`cudaMemGetInfo`), in bytes.
    pub total: u64,
    /// Memory that one process of PyTorch takes outside its allocator, in bytes (estimate): CUDA's context, kernels as they
    /// are loaded, handles of the libraries. What a program finds taken before its first allocation.
    pub context: u64,
    /// The least and the most of it that is known of such a GPU, in bytes.
    pub context_range: (u64, u64),
    /// Whether GPUs of this kind are linked by NVLink in the machines that have several of them.
    pub nvlink: bool,
    /// Whether it can map pages of memory (virtual memory management).
    pub pages: bool,
    /// Second-level cache, in bytes.
    pub l2: u64,
    /// Width of the memory interface, in bits.
    pub bus_width: u32,
    /// Clock of the multiprocessors, in kHz.
    pub clock: u32,
    /// Clock of the memory, in kHz.
    pub memory_clock: u32,
    /// Threads that one multiprocessor holds.
    pub threads_per_multiprocessor: u32,
    /// Blocks that one multiprocessor holds.
    pub blocks_per_multiprocessor: u32,
    /// Shared memory of a multiprocessor, in bytes.
    pub shared_per_multiprocessor: u32,
    /// Shared memory that one block can ask for, in bytes.
    pub shared_per_block: u32,
    /// Whether ECC is on.
    pub ecc: bool,
}

/// The preset with this name, whatever its case, or the only one of it (`h100` is `h100-80gb`), or the GPU that a description such as
/// `sm=132,memory=80GiB,capability=9.0,name=mine` tells of.
///
/// # Errors
/// [`SetupError::UnknownGpu`], with all the names; [`SetupError::Description`], with what is wrong in it.
pub fn find(name: &str) -> Result<Gpu, SetupError> {
    if name.contains('=') {
        return crate::description::parse(name);
    }
    preset(name).ok_or_else(|| {
        let sizes: Vec<_> = sizes(name).map(|gpu| gpu.name).collect();
        let known = if sizes.is_empty() { GPUS.iter().map(|gpu| gpu.name).collect() } else { sizes };
        SetupError::UnknownGpu { name: name.to_owned(), known: known.join(", ") }
    })
}

/// The preset with this name, or the only one of it, whatever its case.
pub(crate) fn preset(name: &str) -> Option<Gpu> {
    let mut sizes = sizes(name);
    let only = sizes.next().filter(|_| sizes.next().is_none());
    GPUS.iter().find(|gpu| gpu.name.eq_ignore_ascii_case(name)).or(only).copied()
}

/// The presets whose name is this one and a size of memory: `a100` has two.
fn sizes(name: &str) -> impl Iterator<Item = &'static Gpu> {
    GPUS.iter().filter(move |gpu| gpu.name.split_once('-').is_some_and(|(of, _)| of.eq_ignore_ascii_case(name)))
}

/// The GPUs of a list: presets separated by commas, descriptions by commas or semicolons. What follows a description after a
/// comma belongs to it as long as it has an equals sign, unless it starts another one (`sm=` or `like=` once more).
///
/// # Errors
/// As [`find`].
pub fn find_all(list: &str) -> Result<Vec<Gpu>, SetupError> {
    let mut found: Vec<String> = Vec::new();
    for group in list.split(';') {
        let mut is_open = false;
        for piece in group.split(',') {
            let key = piece.split_once('=').map(|(key, _)| key.trim());
            let starts = |description: &String| {
                description.split(',').any(|other| other.split_once('=').map(|(name, _)| name.trim()) == key)
            };
            match found.last_mut() {
                Some(last) if is_open && key.is_some() && !starts(last) => {
                    last.push(',');
                    last.push_str(piece);
                }
                _ => found.push(piece.to_owned()),
            }
            is_open = key.is_some();
        }
    }
    found.iter().map(|name| find(name.trim())).collect()
}
