//! What is taken of a GPU's memory outside PyTorch's allocator.
//!
//! Every figure stands here with its source; where sources differ, or only a range is known, it is a range. cuBLAS's workspaces
//! are not here: PyTorch takes them from its own allocator, so that a recording holds them.

use serde::{Deserialize, Serialize};
use stalloc_dryrun_setup::{Gpu, MIB};

/// NCCL's buffers for one communicator where GPUs are linked by NVLink, of two ranks and of more. NVIDIA/nccl#964: 544 and 688 MiB
/// on four A100; the logs of KellerJordan/modded-nanogpt: 1,504 to 1,521 MiB for context and one communicator on eight H100,
/// that is 1,000 to 1,040 for the communicator. The least is taken for the first communicator only: further ones may share it.
const LINKED_PAIR: (u64, u64) = (540 * MIB, 690 * MIB);
const LINKED: (u64, u64) = (690 * MIB, 1040 * MIB);

/// The same where they are not: out-of-memory messages of processes in groups, less the context of a process alone: 0.1 GiB on
/// eight RTX 3080 (huggingface/trl#3436), 0.4 on two A6000, 0.56 on an RTX 3090.
const UNLINKED: (u64, u64) = (100 * MIB, 570 * MIB);

/// The most for one communicator over several machines: NVIDIA/nccl#864 has 6 GB for context and three communicators.
const BETWEEN_MACHINES: u64 = 1840 * MIB;

/// The most that an all-to-all over eight linked GPUs adds when it connects every pair: NVIDIA/nccl#1685, 1.06 to 4.34 GB on H100. In
/// proportion for fewer.
const ALL_TO_ALL_OF_8: u64 = 3130 * MIB;

/// The most that cuDNN was seen to ask PyTorch's allocator for in recordings: 129 MiB in PyTorch's own of ResNet-50, 128 in a U-Net's. It
/// may ask for nothing. Counted where the installed cuDNN was not asked; where it was, its workspaces are in the recording.
const CONVOLUTION: u64 = 130 * MIB;

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
}

/// A share of the memory outside PyTorch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// What takes it.
    pub name: String,
    /// The least that is known, bytes.
    pub low: u64,
    /// The most that is known, bytes.
    pub high: u64,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outside {
    /// The least, bytes.
    pub low: u64,
    /// The most, bytes.
    pub high: u64,
    /// What it is made of.
    pub parts: Vec<Part>,
}

impl Outside {
    /// What a process on `gpu` takes, one of `world_size`; `groups` where the recording tells them.
    pub fn of(gpu: &Gpu, world_size: u32, groups: Option<&Groups>) -> Self {
        let mut parts = vec![Part {
            name: "CUDA context and libraries".to_owned(),
            low: gpu.context_range.0,
            high: gpu.context_range.1,
        }];
        if groups.is_some_and(|groups| groups.convolutions) {
            parts.push(Part { name: "cuDNN's workspaces".to_owned(), low: 0, high: CONVOLUTION });
        }
        let assumed = Groups { used: vec![world_size], ..Groups::default() };
        let groups = groups.filter(|groups| !groups.used.is_empty() || !groups.unused.is_empty());
        if world_size > 1 {
            parts.push(communicators(gpu, groups.unwrap_or(&assumed), groups.is_none()));
        }
        let all_to_all = groups.map_or(0, |groups| groups.all_to_all);
        if world_size > 1 && all_to_all > 2 && gpu.nvlink {
            let high = ALL_TO_ALL_OF_8 * u64::from(all_to_all.min(MACHINE)) / u64::from(MACHINE);
            parts.push(Part { name: format!("NCCL, all-to-all of {all_to_all} ranks"), low: 0, high });
        }
        Outside { low: parts.iter().map(|part| part.low).sum(), high: parts.iter().map(|part| part.high).sum(), parts }
    }
}

fn communicators(gpu: &Gpu, groups: &Groups, is_assumed: bool) -> Part {
    let range = |&ranks: &u32| match (gpu.nvlink, ranks) {
        (true, 0..=2) => LINKED_PAIR,
        (true, _) => LINKED,
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
    Part { name, low: all().next().map_or(0, |ranks| range(ranks).0), high: all().map(most).sum() }
}

#[cfg(test)]
mod tests;
