use super::*;

#[test]
fn a_launch_of_more_than_a_gpu_takes_is_refused() {
    let all = |x, y, z| Dim3 { x, y, z };
    let (one, most) = (all(1, 1, 1), all(i32::MAX as u32, 65_535, 65_535));
    assert!(is_launchable(most, all(1024, 1, 1)) && is_launchable(all(0, 0, 0), all(16, 1, 64)));
    for grid in [all(1 << 31, 1, 1), all(1, 65_536, 1), all(1, 1, 65_536)] {
        assert!(!is_launchable(grid, one));
    }
    for block in [all(1025, 1, 1), all(32, 33, 1), all(1, 1, 65), all(1 << 31, 1 << 31, 4)] {
        assert!(!is_launchable(one, block));
    }
}
