use super::*;

#[test]
fn bytes_are_shown_in_the_unit_that_keeps_them_short() {
    assert_eq!(bytes(0), "0 B");
    assert_eq!(bytes(1023), "1023 B");
    assert_eq!(bytes(1024), "1.0 KiB");
    assert_eq!(bytes((1 << 20) - 1), "1.0 MiB");
    assert_eq!(bytes(3 << 29), "1.50 GiB");
    assert_eq!(bytes(u64::MAX), "16.00 EiB");
}

#[test]
fn sizes_are_read_with_and_without_units() {
    assert_eq!(parse_bytes("80GiB"), Ok(80 << 30));
    assert_eq!(parse_bytes("1.5 GiB"), Ok(3 << 29));
    assert_eq!(parse_bytes("24 GB"), Ok(24_000_000_000));
    assert_eq!(parse_bytes("512"), Ok(512));
    assert_eq!(parse_memory("24GB"), parse_bytes("24GB"));
    assert_eq!(parse_memory("24"), Err("'24' is 24 bytes; with a unit: 24GB".into()));
    for wrong in ["", "GiB", "12 parsec", "-1", "99999999999999999999", "1.2.3"] {
        assert!(parse_bytes(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn counts_have_their_thousands_separated() {
    assert_eq!(count(0), "0");
    assert_eq!(count(999), "999");
    assert_eq!(count(52_310), "52,310");
    assert_eq!(count(1_000_000), "1,000,000");
}
