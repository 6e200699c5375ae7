//! What a trace says of itself, without its events.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use super::varint::VarintCursor;
use super::{ChunkKind, HEAD, MAGIC, VERSIONS, checksum};

/// Chunks at a file's start that are looked at, and the longest of them, bytes: metadata is small.
const CHUNKS: usize = 256;
const LONGEST: u32 = 1 << 20;
/// The chunk that marks a trace as whole is no longer than this, bytes.
const LONGEST_END: usize = HEAD + 64;

/// What a trace's first bytes and its last ones say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The metadata that was written before the first event.
    pub metadata: BTreeMap<String, String>,
    /// Whether the end of the recording is there.
    pub is_whole: bool,
}

/// Looks at both ends of a file; `None` if it is no trace of this format, of a version that is read. O(1).
pub fn about(file: &mut File) -> io::Result<Option<About>> {
    file.seek(SeekFrom::Start(0))?;
    let mut start = [0; MAGIC.len() + 1];
    if !filled(file, &mut start)? || start[..MAGIC.len()] != MAGIC || !VERSIONS.contains(&start[MAGIC.len()]) {
        return Ok(None);
    }
    let mut about = About::default();
    for _ in 0..CHUNKS {
        match next(file)? {
            Some((ChunkKind::Metadata, payload, length)) => {
                let Ok(content) = zstd::bulk::decompress(&payload, length) else { break };
                let mut cursor = VarintCursor::new(&content);
                let (Ok(key), Ok(value)) = (cursor.text(), cursor.text()) else { break };
                about.metadata.insert(key.to_owned(), value.to_owned());
            }
            Some((ChunkKind::Device | ChunkKind::Settings, ..)) => {}
            _ => break,
        }
    }
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(LONGEST_END as u64)))?;
    let mut tail = Vec::new();
    file.take(LONGEST_END as u64).read_to_end(&mut tail)?;
    about.is_whole = (0..tail.len()).any(|from| is_end(&tail[from..]));
    Ok(Some(about))
}

fn word(head: &[u8; HEAD], from: usize) -> u32 {
    u32::from_le_bytes([head[from], head[from + 1], head[from + 2], head[from + 3]])
}

/// Whether these bytes are the chunk of a trace's end, and nothing else.
fn is_end(bytes: &[u8]) -> bool {
    bytes.split_first_chunk::<HEAD>().is_some_and(|(head, payload)| {
        head[12] == ChunkKind::End as u8
            && word(head, 0) as usize == payload.len()
            && checksum(head, payload) == word(head, 8)
    })
}

/// The next chunk with its content's length, if it is small and right.
fn next(file: &mut File) -> io::Result<Option<(ChunkKind, Vec<u8>, usize)>> {
    let mut head = [0; HEAD];
    if !filled(file, &mut head)? || word(&head, 0) > LONGEST || word(&head, 4) > LONGEST {
        return Ok(None);
    }
    let mut payload = vec![0; word(&head, 0) as usize];
    if !filled(file, &mut payload)? || checksum(&head, &payload) != word(&head, 8) {
        return Ok(None);
    }
    Ok(ChunkKind::of(head[12]).map(|kind| (kind, payload, word(&head, 4) as usize)))
}

/// Fills `bytes`; false at the file's end.
fn filled(file: &mut File, bytes: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
