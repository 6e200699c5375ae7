use super::*;
use crate::{errors::INVALID_CONFIGURATION, errors::driver_name, execution::tests::alone};

/// CUDA's driver API, `cuLaunchKernel`: an invalid value where the runtime has an invalid configuration.
#[test]
fn a_launch_of_more_than_a_gpu_takes_is_an_invalid_value_to_the_driver() {
    let _alone = alone();
    for (grid, threads, expected) in
        [([1, 65_535, 1], 1024, SUCCESS), ([1, 65_536, 1], 1, INVALID_VALUE), ([1, 1, 1], 1025, INVALID_VALUE)]
    {
        let [x, y, z] = grid;
        assert_eq!(cuLaunchKernel(0, x, y, z, threads, 1, 1, 0, 0), expected, "{grid:?}, {threads}");
        assert_eq!(cuLaunchCooperativeKernel(0, x, y, z, threads, 1, 1, 0, 0), expected, "{grid:?}, {threads}");
        let block = Dim3 { x: threads, y: 1, z: 1 };
        let configuration = DriverLaunchConfiguration { grid: Dim3 { x, y, z }, block, shared: 0, stream: 0 };
        assert_eq!(cuLaunchKernelEx(In::of(&configuration), 0), expected, "{grid:?}, {threads}");
    }
    assert!(driver_name(INVALID_CONFIGURATION).is_none() && driver_name(INVALID_VALUE).is_some());
}
