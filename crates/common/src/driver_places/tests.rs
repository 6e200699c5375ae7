use super::*;

#[test]
fn segments_lie_where_a_recorded_gpu_put_them() {
    const MIB: u64 = 1 << 20;
    let mut regions = DriverPlaces::below(0x7757_5600_0000);
    // The addresses of a recording of octree NCA's training.
    for (mib, address) in [
        (226, 0x7757_4600_0000),
        (226, 0x7757_3600_0000),
        (450, 0x7757_1800_0000),
        (450, 0x7756_fa00_0000),
        (450, 0x7756_dc00_0000),
        (900, 0x7756_a200_0000),
        (900, 0x7756_6800_0000),
        (988, 0x7756_2a00_0000),
        (1800, 0x7755_b800_0000),
        (3600, 0x7754_d600_0000),
    ] {
        assert_eq!(regions.take(mib * MIB), Some(address), "{mib}");
    }
    regions.give(0x7757_3600_0000, 226 * MIB);
    assert_eq!(
        regions.take(16 * MIB),
        Some(0x7754_d600_0000 + 3600 * MIB),
        "the lowest rest of a region that is in use"
    );
    assert_eq!(regions.take(20 * MIB), Some(0x7755_b800_0000 + 1800 * MIB), "the lowest that is large enough");
    assert_eq!(regions.take(230 * MIB), Some(0x7757_3600_0000), "the highest hole");
}
