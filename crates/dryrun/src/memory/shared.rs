//! Allocations that another process uses too (CUDA IPC): what is known of their content lies in a file that both have open.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::{io, process};

/// What the runtime calls a `cudaIpcMemHandle_t` or a `cudaIpcEventHandle_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpcHandle([u8; 64]);

/// Numbers that a handle holds.
pub type Fields = [u64; 5];

impl IpcHandle {
    /// A handle that holds these numbers.
    pub fn new(fields: Fields) -> Self {
        let mut bytes = [0; 64];
        for (place, field) in bytes.chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_ne_bytes());
        }
        Self(bytes)
    }

    /// The numbers in it.
    pub fn fields(&self) -> Fields {
        let mut fields = Fields::default();
        for (field, place) in fields.iter_mut().zip(self.0.chunks_exact(8)) {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(place);
            *field = u64::from_ne_bytes(bytes);
        }
        fields
    }
}

/// The content of an allocation: its bytes, and behind them for each whether it is known. Takes room only where something is known.
#[derive(Debug)]
pub struct Shared {
    file: File,
    bytes: u64,
    inode: u64,
}

/// Bytes that are copied at once.
const CHUNK: usize = 1 << 20;

impl Shared {
    /// A new one, of which nothing is known.
    pub fn new(bytes: u64) -> io::Result<Self> {
        // SAFETY: the name ends with zero; the answer is checked.
        let descriptor = unsafe { libc::memfd_create(c"stalloc-dryrun".as_ptr(), libc::MFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and nobody else's.
        let file = unsafe { File::from_raw_fd(descriptor) };
        file.set_len(bytes.checked_mul(2).ok_or(io::ErrorKind::FileTooLarge)?)?;
        let inode = file.metadata()?.ino();
        Ok(Self { file, bytes, inode })
    }

    /// What another process opens it by.
    pub fn handle(&self) -> IpcHandle {
        IpcHandle::new([process::id().into(), self.file.as_raw_fd() as u64, self.bytes, self.inode, 0])
    }

    /// That of another process.
    pub fn open(handle: IpcHandle) -> io::Result<Self> {
        let [process, descriptor, bytes, inode, _] = handle.fields();
        let file = OpenOptions::new().read(true).write(true).open(format!("/proc/{process}/fd/{descriptor}"))?;
        let about = file.metadata()?;
        if about.ino() != inode || Some(about.len()) != bytes.checked_mul(2) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Self { file, bytes, inode })
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// These bytes are at an offset now. What cannot be written is not known.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        for (index, chunk) in bytes.chunks(CHUNK).enumerate() {
            let at = offset + (index * CHUNK) as u64;
            let written = self.file.write_all_at(chunk, at).is_ok();
            self.mark(at, chunk.len() as u64, written);
        }
    }

    /// So many bytes at an offset were set to a value.
    pub fn fill(&self, offset: u64, bytes: u64, value: u8) {
        let chunk = vec![value; CHUNK.min(bytes as usize)];
        for at in (offset..offset + bytes).step_by(CHUNK) {
            let length = (offset + bytes - at).min(CHUNK as u64) as usize;
            self.write(at, &chunk[..length]);
        }
    }

    /// Nobody knows what is there.
    pub fn forget(&self, offset: u64, bytes: u64) {
        if offset == 0 && bytes == self.bytes {
            // Cutting it off frees its room.
            let _ = self.file.set_len(self.bytes).and_then(|()| self.file.set_len(2 * self.bytes));
        } else {
            self.mark(offset, bytes, false);
        }
    }

    fn mark(&self, offset: u64, bytes: u64, known: bool) {
        let marks = vec![u8::from(known); CHUNK.min(bytes as usize)];
        for at in (offset..offset + bytes).step_by(CHUNK) {
            let length = (offset + bytes - at).min(CHUNK as u64) as usize;
            let _ = self.file.write_all_at(&marks[..length], self.bytes + at);
        }
    }

    /// Whether all of so many bytes at an offset are known.
    pub fn is_known(&self, offset: u64, bytes: u64) -> bool {
        let mut marks = vec![0; CHUNK.min(bytes as usize)];
        (offset..offset + bytes).step_by(CHUNK).all(|at| {
            let marks = &mut marks[..(offset + bytes - at).min(CHUNK as u64) as usize];
            self.file.read_exact_at(marks, self.bytes + at).is_ok() && marks.iter().all(|mark| *mark == 1)
        })
    }

    /// Reads what is at an offset; false unless all of it is known.
    pub fn read(&self, offset: u64, target: &mut [u8]) -> bool {
        self.is_known(offset, target.len() as u64) && self.file.read_exact_at(target, offset).is_ok()
    }
}
