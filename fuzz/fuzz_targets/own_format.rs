//! Our own format.

#![no_main]
#![allow(dead_code)]

mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::own_format(data));
