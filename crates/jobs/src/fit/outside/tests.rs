use super::*;
use stalloc_dryrun_setup::find;

fn of(gpu: &str, world_size: u32, groups: Option<Groups>) -> Outside {
    Outside::of(&find(gpu).unwrap(), world_size, groups.as_ref())
}

#[test]
fn a_process_alone_has_its_context_only() {
    let outside = of("h100-80gb", 1, None);
    assert_eq!((outside.low, outside.high), (510 * MIB, 770 * MIB));
    assert!(
        outside.parts[0].to_string().starts_with("CUDA context and libraries 510.0 to 770.0 MiB (context measured ")
    );
    let described = of("sm=8,memory=1GiB,capability=8.0,context=16MiB", 1, None);
    assert_eq!(described.parts[0].to_string(), "CUDA context and libraries 16.0 MiB (as described)");
    let alone = |gpu| of(gpu, 1, Some(Groups { used: vec![1], ..Groups::default() }));
    assert_eq!(alone("rtx4090").parts.len(), 1);
    assert_eq!(alone("gb300").parts[1].to_string(), "NCCL, one communicator 0 to 512.0 MiB (NVIDIA/nccl#2363)");
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
    let alone_too = of("a100-80gb", 4, Some(Groups { used: vec![1, 4], ..Groups::default() }));
    assert_eq!((alone_too.low, alone_too.high), (one.low, one.high + ALONE.1));
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
    let named = of("a100-80gb", 1, Some(Groups { named: true, ..Groups::default() }));
    assert_eq!((named.low, named.high), (without.low, without.high + 180 * MIB), "178 in net-vgg16-bn on an H200");
}

#[test]
fn kernels_loaded_at_once_take_more() {
    let eager = of("rtx3090", 1, Some(Groups { eager: true, ..Groups::default() }));
    assert_eq!(eager.high, 1650 * MIB, "the most that was seen of such cards before CUDA 11.7");
}

#[test]
fn an_all_to_all_may_take_gigabytes_more() {
    let groups = |all_to_all| Some(Groups { used: vec![8], all_to_all, ..Groups::default() });
    let (without, with) = (of("h100-80gb", 8, groups(0)), of("h100-80gb", 8, groups(8)));
    assert_eq!((with.low - without.low, with.high - without.high), (0, ALL_TO_ALL_OF_8));
    assert_eq!(of("h100-80gb", 8, groups(4)).high - without.high, ALL_TO_ALL_OF_8 / 2);
}

/// MiB outside PyTorch's allocator of processes on an H200, driver 580, CUDA 13.0, PyTorch 2.11: five jobs that train, and one that used each
/// library once, one NCCL rank last.
#[test]
fn what_an_h200_showed_lies_within_the_range() {
    let of = |loaded: &[&str], used: &[u32]| {
        let loaded = loaded.iter().map(|name| (*name).to_owned()).collect();
        of("h200-141gb", 1, Some(Groups { loaded, used: used.to_vec(), ..Groups::default() }))
    };
    let libraries = ["cuSOLVER", "cuFFT", "CUDA graphs"];
    let shown = [
        (of(&[], &[]), 768.9),
        (of(&libraries[..1], &[]), 862.9),
        (of(&libraries[..2], &[]), 870.9),
        (of(&libraries, &[]), 940.9),
    ];
    for (outside, mib) in shown.into_iter().chain([(of(&libraries, &[1]), 1428.9)]) {
        let most = outside.high as f64 / MIB as f64;
        assert!(most >= mib && most < mib + 30.0 && outside.low < 526 * MIB, "{mib}: {outside:?}");
    }
    assert_eq!(find("h200-141gb").unwrap().context, 527 * MIB, "a context alone");
    assert!(of(&[], &[]).parts[0].source.contains("an H200, driver 580"));
}
