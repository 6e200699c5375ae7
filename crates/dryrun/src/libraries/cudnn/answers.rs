//! What the installed cuDNN answered, kept for later processes: one file for each version and card.
//!
//! Each answer is kept when it is given: the end of the program may be no time for it. PyTorch's autograd thread can abort the
//! process there (it frees a gradient that Python holds, when Python is being finalized).

use super::installed::CudnnAnswer;
use stalloc_common::{PrivateFolder, hash};
use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
};

/// The most that a file may hold, in bytes; a network of 50 convolutions takes 60 KiB. Beyond it starts anew.
const LARGEST: u64 = 16 << 20;

/// What changes when an answer is kept under another key, or in another form.
const FORM: u64 = 1;

pub struct AnswerFile {
    name: OsString,
    known: HashMap<u64, CudnnAnswer>,
}

impl AnswerFile {
    /// Those of a version for a card. Without a file there are none; one that is damaged or too long begins anew.
    pub fn open(version: usize, card: &str) -> Self {
        let name = OsString::from(format!("cudnn-{version}-{:016x}-{FORM}", hash(card.as_bytes())));
        let known = folder().map(|folder| read(&folder, &name)).unwrap_or_default();
        Self { name, known }
    }

    pub fn get(&self, key: u64) -> Option<CudnnAnswer> {
        self.known.get(&key).cloned()
    }

    pub fn keep(&mut self, key: u64, answer: &CudnnAnswer) {
        self.known.insert(key, answer.clone());
        if let Some(folder) = folder() {
            // A cache that cannot be written is none.
            let _ = folder.append(&self.name, &record(key, answer));
        }
    }
}

fn read(folder: &PrivateFolder, name: &OsStr) -> HashMap<u64, CudnnAnswer> {
    let (mut known, mut is_whole) = (HashMap::new(), false);
    if let Ok(kept) = folder.read(name, LARGEST) {
        let mut good = 0;
        known.extend(records(&kept).map(|(key, answer)| {
            good += record(key, &answer).len();
            (key, answer)
        }));
        is_whole = good == kept.len();
    }
    if !is_whole {
        // What is added behind the damage would never be read.
        let _ = folder.remove(name);
    }
    known
}

fn folder() -> Option<PrivateFolder> {
    PrivateFolder::kept("cudnn").ok()
}

/// Length, checksum, and the answer.
fn record(key: u64, answer: &CudnnAnswer) -> Vec<u8> {
    let mut body = key.to_ne_bytes().to_vec();
    body.extend(answer.status.to_ne_bytes());
    body.extend((answer.count as u64).to_ne_bytes());
    body.extend(&answer.bytes);
    [(body.len() as u64).to_ne_bytes().to_vec(), hash(&body).to_ne_bytes().to_vec(), body].concat()
}

/// The answers of a file, up to the first that is damaged.
fn records(mut bytes: &[u8]) -> impl Iterator<Item = (u64, CudnnAnswer)> {
    fn number(bytes: &mut &[u8]) -> Option<u64> {
        let (first, rest) = bytes.split_first_chunk()?;
        *bytes = rest;
        Some(u64::from_ne_bytes(*first))
    }
    std::iter::from_fn(move || {
        let (length, sum) = (number(&mut bytes)?, number(&mut bytes)?);
        let (mut body, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
        if hash(body) != sum {
            return None;
        }
        bytes = rest;
        let key = number(&mut body)?;
        let (status, rest) = body.split_first_chunk()?;
        body = rest;
        let count = usize::try_from(number(&mut body)?).ok()?;
        Some((key, CudnnAnswer { status: i32::from_ne_bytes(*status), count, bytes: body.to_vec() }))
    })
}

#[cfg(test)]
mod tests;
