//! Logs of the paper's artifact.

#![no_main]
#![allow(dead_code)]

mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::paper_log(data));
