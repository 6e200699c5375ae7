//! Writes the snapshot of a training run of any length, as Python would: a pickle of protocol 4 whose strings and
//! frames are shared through the memo, stacks of some dozen frames, three entries for each request, and the segments
//! that the last entry leaves behind. Same length, same bytes.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

/// Distinct call stacks, and frames in each.
const STACKS: u64 = 4000;
const DEPTH: u64 = 36;
const SEGMENT: u64 = 1 << 30;

/// Writes a snapshot of about `bytes` bytes.
pub fn write(out: &mut impl Write, bytes: u64) -> io::Result<()> {
    let mut pickle = Pickle { out, written: 0, memo: 0, texts: HashMap::new(), frames: HashMap::new() };
    let mut job = Job::default();
    pickle.put(b"\x80\x04}\x94(")?;
    pickle.text("device_traces")?;
    pickle.put(b"]\x94]\x94(")?;
    pickle.memo += 3;
    // Segments take far less than the entries.
    while pickle.written < bytes {
        job.step(&mut pickle)?;
    }
    pickle.put(b"ea")?;
    pickle.text("segments")?;
    job.segments(&mut pickle)?;
    pickle.put(b"u.")
}

/// Numbers that look random (SplitMix64).
fn random(seed: u64) -> u64 {
    let mut z = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The program: layers that keep some of their buffers from forward to backward.
#[derive(Default)]
struct Job {
    time: u64,
    top: u64,
    end: u64,
    free: HashMap<u64, Vec<u64>>,
    live: BTreeMap<u64, u64>,
}

impl Job {
    fn step<W: Write>(&mut self, pickle: &mut Pickle<'_, W>) -> io::Result<()> {
        let mut kept = Vec::new();
        for layer in 0..64 {
            for place in 0..20 {
                let site = layer % 8 * 20 + place;
                let size = 512 * (1 + random(site) % 20_000);
                let address = self.alloc(pickle, size, site)?;
                if place % 4 == 0 {
                    kept.push((address, size, site));
                } else {
                    self.free(pickle, address, size, site)?;
                }
            }
        }
        while let Some((address, size, site)) = kept.pop() {
            self.free(pickle, address, size, site)?;
        }
        // Something stays for ever.
        self.alloc(pickle, 4096, 7)?;
        Ok(())
    }

    fn alloc<W: Write>(&mut self, pickle: &mut Pickle<'_, W>, size: u64, site: u64) -> io::Result<u64> {
        let address = match self.free.get_mut(&size).and_then(Vec::pop) {
            Some(address) => address,
            None => {
                if self.top + size > self.end {
                    let start = 0x7F00_0000_0000 + self.end.saturating_sub(0x7F00_0000_0000);
                    self.entry(pickle, "segment_alloc", start, SEGMENT, site)?;
                    (self.top, self.end) = (start, start + SEGMENT);
                }
                self.top += size;
                self.top - size
            }
        };
        self.entry(pickle, "alloc", address, size, site)?;
        self.live.insert(address, size);
        Ok(address)
    }

    fn free<W: Write>(&mut self, pickle: &mut Pickle<'_, W>, address: u64, size: u64, site: u64) -> io::Result<()> {
        self.entry(pickle, "free_requested", address, size, site + 1)?;
        self.entry(pickle, "free_completed", address, size, site + 1)?;
        self.live.remove(&address);
        self.free.entry(size).or_default().push(address);
        Ok(())
    }

    fn entry<W: Write>(
        &mut self,
        pickle: &mut Pickle<'_, W>,
        action: &str,
        at: u64,
        size: u64,
        site: u64,
    ) -> io::Result<()> {
        self.time += 7;
        pickle.put(b"}\x94(")?;
        pickle.memo += 1;
        pickle.text("action")?;
        pickle.text(action)?;
        for (name, value) in
            [("addr", at), ("size", size), ("stream", 0), ("time_us", 1_750_000_000_000_000 + self.time)]
        {
            pickle.text(name)?;
            pickle.int(value)?;
        }
        pickle.text("compile_context")?;
        pickle.text("N/A")?;
        pickle.text("user_metadata")?;
        pickle.text("")?;
        pickle.text("frames")?;
        pickle.stack(random(site * 8 + self.time / 7 % 25) % STACKS)?;
        pickle.put(b"u")
    }

    fn segments<W: Write>(&self, pickle: &mut Pickle<'_, W>) -> io::Result<()> {
        pickle.put(b"]\x94(")?;
        pickle.memo += 1;
        let mut start = 0x7F00_0000_0000;
        while start < self.end {
            pickle.put(b"}\x94(")?;
            pickle.memo += 1;
            for (name, value) in [("device", 0), ("address", start), ("total_size", SEGMENT), ("stream", 0)] {
                pickle.text(name)?;
                pickle.int(value)?;
            }
            pickle.text("segment_type")?;
            pickle.text("large")?;
            pickle.text("blocks")?;
            pickle.put(b"]\x94(")?;
            pickle.memo += 1;
            for (&address, &size) in self.live.range(start..start + SEGMENT) {
                pickle.put(b"}\x94(")?;
                pickle.memo += 1;
                for (name, value) in [("address", address), ("size", size), ("requested_size", size)] {
                    pickle.text(name)?;
                    pickle.int(value)?;
                }
                pickle.text("state")?;
                pickle.text("active_allocated")?;
                pickle.put(b"u")?;
            }
            pickle.put(b"eu")?;
            start += SEGMENT;
        }
        pickle.put(b"e")
    }
}

/// The pickler's side of the memo.
struct Pickle<'w, W> {
    out: &'w mut W,
    written: u64,
    memo: u32,
    texts: HashMap<String, u32>,
    frames: HashMap<u64, u32>,
}

impl<W: Write> Pickle<'_, W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    fn recall(&mut self, index: u32) -> io::Result<()> {
        match u8::try_from(index) {
            Ok(short) => self.put(&[b'h', short]),
            Err(_) => {
                let [a, b, c, d] = index.to_le_bytes();
                self.put(&[b'j', a, b, c, d])
            }
        }
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        if let Some(&index) = self.texts.get(text) {
            return self.recall(index);
        }
        self.texts.insert(text.to_owned(), self.memo);
        self.memo += 1;
        self.put(&[0x8C, text.len() as u8])?;
        self.put(text.as_bytes())?;
        self.put(b"\x94")
    }

    fn int(&mut self, value: u64) -> io::Result<()> {
        if let Ok(byte) = u8::try_from(value) {
            self.put(&[b'K', byte])
        } else if let Ok(word) = i32::try_from(value) {
            let [a, b, c, d] = word.to_le_bytes();
            self.put(&[b'J', a, b, c, d])
        } else {
            self.put(&[0x8A, 7])?;
            self.put(&value.to_le_bytes()[..7])
        }
    }

    /// A list of frames; those further out are shared by more stacks.
    fn stack(&mut self, stack: u64) -> io::Result<()> {
        self.put(b"]\x94(")?;
        self.memo += 1;
        for depth in 0..DEPTH {
            let frame = (depth << 32) | (random(stack >> (depth / 3)) % 50_000);
            if let Some(&index) = self.frames.get(&frame) {
                self.recall(index)?;
                continue;
            }
            self.frames.insert(frame, self.memo);
            self.memo += 1;
            self.put(b"}\x94(")?;
            self.text("name")?;
            self.text(&format!("forward_{}", frame % 3000))?;
            self.text("filename")?;
            self.text(&format!("/usr/lib/python3/dist-packages/torch/nn/modules/module_{}.py", frame % 400))?;
            self.text("line")?;
            self.int(frame % 2000)?;
            self.put(b"u")?;
        }
        self.put(b"e")
    }
}
