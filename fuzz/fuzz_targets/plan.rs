//! Plan files: as they are, and with a header that is right for random content.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    read(data);
    let body = zstd::bulk::compress(data, 1).expect("memory takes everything");
    let mut bytes = stalloc_plan::encode(&stalloc_plan::Plan::default()).expect("an empty plan is written");
    bytes.truncate(12);
    bytes.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
    bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&body);
    read(&bytes);
});

fn read(bytes: &[u8]) {
    if let Ok(plan) = stalloc_plan::decode(bytes) {
        let again = stalloc_plan::encode(&plan).expect("what was read is written");
        assert!(stalloc_plan::decode(&again).expect("what was written is read") == plan);
    }
}
