//! Makes a snapshot of any size: `cargo run --release --example make_snapshot -- FILE BYTES`.

mod generator;

use std::fs::File;
use std::io::{self, BufWriter, Write};

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(path), Some(Ok(bytes))) = (args.next(), args.next().map(|bytes| bytes.parse())) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "usage: make_snapshot FILE BYTES"));
    };
    let mut out = BufWriter::new(File::create(path)?);
    generator::write(&mut out, bytes)?;
    out.flush()
}
