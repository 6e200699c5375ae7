use proptest::prelude::*;

use super::*;

// Reads a column as the page does.
fn read(bytes: &[u8], column: ColumnPlace) -> Vec<u64> {
    let mut at = column.at;
    let mut last = 0i64;
    (0..column.n)
        .map(|_| {
            let mut value = 0u64;
            let mut shift = 0;
            loop {
                let byte = bytes[at];
                at += 1;
                value |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    break;
                }
            }
            if !column.delta {
                return value;
            }
            let step = if value & 1 == 1 { -(value.div_ceil(2) as i64) } else { (value / 2) as i64 };
            last += step;
            last as u64
        })
        .collect()
}

proptest! {
    #[test]
    fn columns_read_back_as_written(plain in prop::collection::vec(0..1u64 << 52, 0..50), steps in prop::collection::vec(0..1u64 << 52, 0..50)) {
        let mut columns = Columns::default();
        let first = columns.plain(plain.iter().copied());
        let second = columns.delta(steps.iter().copied());
        let bytes = columns.into_bytes();
        prop_assert_eq!(read(&bytes, first), plain);
        prop_assert_eq!(read(&bytes, second), steps);
    }
}
