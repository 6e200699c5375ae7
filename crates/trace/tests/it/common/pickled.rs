//! Snapshots and other pickles, put together from parts.

use stalloc_trace::{Input, Recording, read_bytes};

/// Enough for every honest file here.
pub const LIMIT: u64 = 64 << 20;

pub fn pickle(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![0x80, 4];
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

pub fn text(text: &str) -> Vec<u8> {
    [&[0x8C, text.len() as u8], text.as_bytes()].concat()
}

/// A snapshot whose entries and segments are given as pickled values.
pub fn snapshot(entries: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
    let list = |items: &[Vec<u8>]| [b"](".to_vec(), items.concat(), b"e".to_vec()].concat();
    let traces = list(&[list(entries)]);
    pickle(&[b"}(", &text("device_traces"), &traces, &text("segments"), &list(segments), b"u."])
}

/// A dict of pickled values.
pub fn dict(fields: &[(&str, &[u8])]) -> Vec<u8> {
    let fields: Vec<u8> = fields.iter().flat_map(|(key, value)| [text(key), value.to_vec()].concat()).collect();
    [b"}(".to_vec(), fields, b"u".to_vec()].concat()
}

pub fn entry(action: &str, address: &[u8], size: &[u8]) -> Vec<u8> {
    dict(&[("action", &text(action)), ("addr", address), ("size", size)])
}

pub fn int(value: i64) -> Vec<u8> {
    [vec![0x8A, 8], value.to_le_bytes().to_vec()].concat()
}

pub fn float(value: f64) -> Vec<u8> {
    [vec![b'G'], value.to_be_bytes().to_vec()].concat()
}

pub fn recording(bytes: &[u8]) -> Recording {
    match read_bytes(bytes, LIMIT).unwrap() {
        Input::Recording(recording) => recording,
        Input::Instance(_) => panic!("an instance"),
    }
}
