//! What the installed cuDNN answered, kept for later processes: one file for each version and card.

use super::installed::Answer;
use stalloc_common::{PrivateFolder, hash};
use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    sync::{Mutex, PoisonError},
};

/// The most that a file may hold, in bytes; a network of 50 convolutions takes 60 KiB. Beyond it starts anew.
const LARGEST: u64 = 16 << 20;

/// What changes when an answer is kept under another key, or in another form.
const FORM: u64 = 1;

/// Answers that are new in this process, and the name of their file.
static NEW: Mutex<Option<(OsString, Vec<u8>)>> = Mutex::new(None);

pub struct AnswerFile(HashMap<u64, Answer>);

impl AnswerFile {
    /// Those of a version for a card. Without a file there are none.
    pub fn open(version: usize, card: &str) -> Self {
        let name = OsString::from(format!("cudnn-{version}-{:016x}-{FORM}", hash(card.as_bytes())));
        let kept = folder().and_then(|folder| folder.read(&name, LARGEST).ok()).unwrap_or_default();
        *NEW.lock().unwrap_or_else(PoisonError::into_inner) = Some((name, Vec::new()));
        Self(records(&kept).collect())
    }

    pub fn get(&self, key: u64) -> Option<Answer> {
        self.0.get(&key).cloned()
    }

    pub fn keep(&mut self, key: u64, answer: &Answer) {
        self.0.insert(key, answer.clone());
        if let Some((_, new)) = NEW.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            new.extend(record(key, answer));
        }
    }
}

fn folder() -> Option<PrivateFolder> {
    PrivateFolder::kept("cudnn").ok()
}

/// Length, checksum, and the answer.
fn record(key: u64, answer: &Answer) -> Vec<u8> {
    let mut body = key.to_ne_bytes().to_vec();
    body.extend(answer.status.to_ne_bytes());
    body.extend((answer.count as u64).to_ne_bytes());
    body.extend(&answer.bytes);
    [(body.len() as u64).to_ne_bytes().to_vec(), hash(&body).to_ne_bytes().to_vec(), body].concat()
}

/// The answers of a file, up to the first that is damaged.
fn records(mut bytes: &[u8]) -> impl Iterator<Item = (u64, Answer)> {
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
        Some((key, Answer { status: i32::from_ne_bytes(*status), count, bytes: body.to_vec() }))
    })
}

/// Adds what is new to the file, when the process ends. What another process added meanwhile stays.
extern "C" fn save() {
    let Some((name, new)) = NEW.lock().unwrap_or_else(PoisonError::into_inner).take() else {
        return;
    };
    if new.is_empty() {
        return;
    }
    if let Some(folder) = folder() {
        write(&folder, &name, &new);
    }
}

fn write(folder: &PrivateFolder, name: &OsStr, new: &[u8]) {
    let kept = folder.read(name, LARGEST - (new.len() as u64).min(LARGEST)).unwrap_or_default();
    // A cache that cannot be written is none.
    let _ = folder.write(name, |file| {
        file.write_all(&kept)?;
        file.write_all(new)
    });
}

#[used]
#[unsafe(link_section = ".fini_array")]
static SAVE: extern "C" fn() = save;

#[cfg(test)]
mod tests {
    use super::{Answer, record, records};

    #[test]
    fn answers_are_read_back_up_to_the_first_that_is_damaged() {
        let answer = |status| Answer { status, count: 3, bytes: vec![1, 2, 3] };
        let mut file = [record(7, &answer(0)), record(8, &answer(3000)), record(9, &answer(0))].concat();
        let read: Vec<_> = records(&file).collect();
        assert_eq!(read, [(7, answer(0)), (8, answer(3000)), (9, answer(0))]);
        for end in 0..file.len() {
            assert!(records(&file[..end]).count() <= 2);
        }
        let middle = file.len() / 2;
        file[middle] ^= 1;
        assert_eq!(records(&file).collect::<Vec<_>>(), [(7, answer(0))]);
        assert_eq!(records(&[0xff; 64]).count(), 0, "a length without limit");
    }
}
