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
mod tests {
    use super::*;
    use stalloc_dryrun_setup::find;

    fn of(gpu: &str, world_size: u32, groups: Option<Groups>) -> Outside {
        Outside::of(&find(gpu).unwrap(), world_size, groups.as_ref())
    }

    #[test]
    fn a_process_alone_has_its_context_only() {
        let outside = of("h100-80gb", 1, None);
        assert_eq!((outside.low, outside.high), (510 * MIB, 680 * MIB));
        let unlinked = of("rtx4090", 1, Some(Groups { used: vec![1], ..Groups::default() }));
        assert_eq!(unlinked.parts.len(), 1);
    }

    #[test]
    fn what_eight_h100_showed_lies_within_the_range() {
        let outside = of("h100-80gb", 8, Some(Groups { used: vec![8], ..Groups::default() }));
        assert!(outside.low <= 1504 * MIB && 1521 * MIB <= outside.high, "{outside:?}");
    }

    #[test]
    fn communicators_add_up_and_those_that_may_be_unused_widen_the_range() {
        let one = of("a100-80gb", 4, Some(Groups { used: vec![4], ..Groups::default() }));
        let two = of("a100-80gb", 4, Some(Groups { used: vec![4, 2], ..Groups::default() }));
        let perhaps = of("a100-80gb", 4, Some(Groups { used: vec![4], unused: vec![2], ..Groups::default() }));
        assert_eq!(two.high - one.high, LINKED_PAIR.1);
        assert_eq!((perhaps.low, perhaps.high), (one.low, two.high));
        assert!(perhaps.parts[1].name.contains("1 to 2 communicators"));
        let far = of("a100-80gb", 64, Some(Groups { used: vec![64], ..Groups::default() }));
        assert!(far.high > one.high);
    }

    #[test]
    fn an_assumption_is_said() {
        let outside = of("t4", 2, None);
        assert!(outside.parts[1].name.contains("taken to have one"), "{outside:?}");
        assert_eq!(outside, of("t4", 2, Some(Groups::default())));
    }

    #[test]
    fn convolutions_may_take_a_workspace() {
        let groups = |convolutions| Some(Groups { convolutions, ..Groups::default() });
        let (with, without) = (of("a100-80gb", 1, groups(true)), of("a100-80gb", 1, groups(false)));
        assert_eq!((with.low, with.high), (without.low, without.high + 130 * MIB));
    }

    #[test]
    fn an_all_to_all_may_take_gigabytes_more() {
        let groups = |all_to_all| Some(Groups { used: vec![8], all_to_all, ..Groups::default() });
        let (without, with) = (of("h100-80gb", 8, groups(0)), of("h100-80gb", 8, groups(8)));
        assert_eq!((with.low - without.low, with.high - without.high), (0, ALL_TO_ALL_OF_8));
        assert_eq!(of("h100-80gb", 8, groups(4)).high - without.high, ALL_TO_ALL_OF_8 / 2);
    }
}
