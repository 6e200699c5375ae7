//! What is taken of a GPU's memory outside PyTorch's allocator.
//!
//! Every figure stands here with its source; where sources differ, or only a range is known, it is a range. cuBLAS's workspaces
//! are not here: PyTorch takes them from its own allocator, so that a recording holds them.

use std::fmt;

use serde::{Deserialize, Serialize};
use stalloc_common::figures::bytes;
use stalloc_dryrun_setup::{Gpu, MIB};

/// NCCL's buffers for one communicator where GPUs are linked by NVLink, of two ranks and of more. NVIDIA/nccl#964: 544 and 688 MiB
/// on four A100; the logs of KellerJordan/modded-nanogpt: 1,504 to 1,521 MiB for context and one communicator on eight H100,
/// that is 1,000 to 1,040 for the communicator. The least is taken for the first communicator only: further ones may share it.
const LINKED_PAIR: (u64, u64) = (540 * MIB, 690 * MIB);
const LINKED: (u64, u64) = (690 * MIB, 1040 * MIB);

/// The same where they are not: out-of-memory messages of processes in groups, less the context of a process alone: 0.1 GiB on
/// eight RTX 3080 (huggingface/trl#3436), 0.4 on two A6000, 0.56 on an RTX 3090.
const UNLINKED: (u64, u64) = (100 * MIB, 570 * MIB);

/// NCCL's network buffer of a rank alone: 512 MiB on a B300 (NVIDIA/nccl#2363), 488 on an H200 (driver 580), none on an RTX 3090 (#2366).
const ALONE: (u64, u64) = (0, 512 * MIB);

/// The most for one communicator over several machines: NVIDIA/nccl#864 has 6 GB for context and three communicators.
const BETWEEN_MACHINES: u64 = 1840 * MIB;

/// The most that an all-to-all over eight linked GPUs adds when it connects every pair: NVIDIA/nccl#1685, 1.06 to 4.34 GB on H100. In
/// proportion for fewer.
const ALL_TO_ALL_OF_8: u64 = 3130 * MIB;

/// The most that cuDNN was seen to ask PyTorch's allocator for in recordings: 129 MiB in PyTorch's own of ResNet-50, 128 in a U-Net's. It
/// may ask for nothing. Counted where the installed cuDNN was not asked; where it was, its workspaces are in the recording.
const CONVOLUTION: u64 = 130 * MIB;

/// Asked with no GPU, cuDNN leaves out the partial sums of split reductions: on an H200 (driver 580, cuDNN 9.19) 21 jobs needed at most
/// 178 MiB more than their dry runs (bench/results/fidelity.md).
const PARTIAL_SUMS: u64 = 180 * MIB;

/// What one first use of these added on an H200 (driver 580, CUDA 13.0, PyTorch 2.11), one after the other in a process: their kernels.
/// Other uses load others.
const LOADED: [(&str, u64); 3] = [("cuSOLVER", 96 * MIB), ("cuFFT", 8 * MIB), ("CUDA graphs", 70 * MIB)];

/// What all kernels take more, loaded at once: pytorch#86509 has 287 and 667 MB, and before CUDA 11.7, where nothing else was
/// possible, an RTX 3090 had up to 1,650 MiB in all (bench/results/fidelity.md), of which its context has 430 today.
const EAGER: (u64, u64) = (360 * MIB, 1220 * MIB);

/// GPUs that a machine is taken to have at most.
const MACHINE: u32 = 8;

/// The process groups of one rank, as the recording saw them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Groups {
    /// How many ranks each group has in which collectives were called.
    pub used: Vec<u32>,
    /// The same of groups in which none were seen; C++ may have called them.
    pub unused: Vec<u32>,
    /// Ranks of the largest group with an all-to-all; 0: none was called.
    pub all_to_all: u32,
    /// The ranks of the groups in which single ranks sent to each other, as the stages of a pipeline do.
    #[serde(default)]
    pub stages: Vec<u32>,
    /// Whether the program has convolutions of which the installed cuDNN did not say what they need.
    #[serde(default)]
    pub convolutions: bool,
    /// Whether it has some of which it did.
    #[serde(default)]
    pub named: bool,
    /// Whether `CUDA_MODULE_LOADING` had all kernels loaded at once.
    #[serde(default)]
    pub eager: bool,
    /// Those of [`LOADED`] that the program used.
    #[serde(default)]
    pub loaded: Vec<String>,
}

/// A share of the memory outside PyTorch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// What takes it.
    pub name: String,
    /// The least that is known, bytes.
    pub low: u64,
    /// The most that is known, bytes.
    pub high: u64,
    /// Where both are from.
    pub source: String,
}

impl Share {
    fn new(name: &str, (low, high): (u64, u64), source: &str) -> Self {
        Share { name: name.to_owned(), low, high, source: source.to_owned() }
    }
}

impl fmt::Display for Share {
    /// `cuDNN's workspaces 0 to 130.0 MiB (a recording of ResNet-50)`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = (bytes(self.low), bytes(self.high));
        let takes = match (low.split_once(' '), high.split_once(' ')) {
            _ if low == high => low,
            (Some((number, unit)), Some((_, other))) if unit == other || self.low == 0 => format!("{number} to {high}"),
            _ => format!("{low} to {high}"),
        };
        write!(out, "{} {takes} ({})", self.name, self.source)
    }
}

/// Bytes that a process takes of a GPU outside PyTorch's allocator, least and most, with their parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outside {
    /// The least, bytes.
    pub low: u64,
    /// The most, bytes.
    pub high: u64,
    /// What it is made of.
    pub parts: Vec<Share>,
}

impl Outside {
    /// What a process on `gpu` takes, one of `world_size`; `groups` where the recording tells them.
    pub fn of(gpu: &Gpu, world_size: u32, groups: Option<&Groups>) -> Self {
        let (least, most) = gpu.context_range;
        let source = match gpu.name {
            _ if least == most => "as described",
            "h200-141gb" => "measured on an H200, driver 580; public out-of-memory messages",
            "h100-80gb" => {
                "context measured on an H100, driver 580, the rest on an H200; public out-of-memory messages"
            }
            "h20" | "gh200-96gb" => "inferred from an H200's and an H100's",
            "a10" | "a40" | "rtx3080" | "l4" | "rtx4080" | "gb200" | "gb300" => "inferred from cards of its kind",
            _ => "inferred from public out-of-memory messages",
        };
        let mut parts = vec![Share::new("CUDA context and libraries", gpu.context_range, source)];
        if groups.is_some_and(|groups| groups.eager) {
            parts.push(Share::new("all kernels loaded at once", EAGER, "pytorch#86509, RTX 3090 before CUDA 11.7"));
        }
        if groups.is_some_and(|groups| groups.convolutions) {
            parts.push(Share::new("cuDNN's workspaces", (0, CONVOLUTION), "a recording of ResNet-50"));
        } else if groups.is_some_and(|groups| groups.named) {
            parts.push(Share::new("cuDNN's partial sums", (0, PARTIAL_SUMS), "21 jobs on an H200"));
        }
        for (name, most) in LOADED {
            if groups.is_some_and(|groups| groups.loaded.iter().any(|used| used == name)) {
                parts.push(Share::new(name, (0, most), "an H200, driver 580"));
            }
        }
        let groups = groups.filter(|groups| !groups.used.is_empty() || !groups.unused.is_empty());
        let assumed =
            Groups { used: (world_size > 1).then_some(world_size).into_iter().collect(), ..Groups::default() };
        parts.extend(communicators(gpu, groups.unwrap_or(&assumed), groups.is_none()));
        let all_to_all = groups.map_or(0, |groups| groups.all_to_all);
        if all_to_all > 2 && gpu.nvlink {
            let most = ALL_TO_ALL_OF_8 * u64::from(all_to_all.min(MACHINE)) / u64::from(MACHINE);
            parts.push(Share::new(&format!("NCCL, all-to-all of {all_to_all} ranks"), (0, most), "NVIDIA/nccl#1685"));
        }
        Outside { low: parts.iter().map(|part| part.low).sum(), high: parts.iter().map(|part| part.high).sum(), parts }
    }
}

/// NCCL's buffers; none where it has none.
fn communicators(gpu: &Gpu, groups: &Groups, is_assumed: bool) -> Option<Share> {
    let range = |&ranks: &u32| match (gpu.nvlink, ranks) {
        (true, 0..=1) => ALONE,
        (true, 2) => LINKED_PAIR,
        (true, _) => LINKED,
        (false, 0..=1) => (0, 0),
        (false, _) => UNLINKED,
    };
    let most = |ranks: &u32| if *ranks > MACHINE { BETWEEN_MACHINES } else { range(ranks).1 };
    let all = || groups.used.iter().chain(&groups.unused);
    let name = match (is_assumed, groups.used.len(), groups.unused.len()) {
        (true, ..) => "NCCL, taken to have one communicator".to_owned(),
        (_, 1, 0) => "NCCL, one communicator".to_owned(),
        (_, used, 0) => format!("NCCL, {used} communicators"),
        (_, used, unused) => format!("NCCL, {used} to {} communicators", used + unused),
    };
    let source = match (all().max(), gpu.nvlink) {
        (Some(0..=1), _) => "NVIDIA/nccl#2363",
        (Some(ranks), _) if *ranks > MACHINE => "NVIDIA/nccl#864",
        (_, true) => "NVIDIA/nccl#964, logs of modded-nanogpt",
        (_, false) => "messages of processes in groups",
    };
    let low = all().map(|ranks| range(ranks).0).find(|&low| low > 0).unwrap_or(0);
    let high = all().map(most).sum();
    (high > 0).then(|| Share::new(&name, (low, high), source))
}

#[cfg(test)]
mod tests;
