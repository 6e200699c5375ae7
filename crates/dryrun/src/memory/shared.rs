//! Memory that another process uses too (CUDA IPC, descriptors of pages): what is known of its content lies in a file that both have
//! open.

use std::ffi::{CStr, CString};
use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::{io, process};

/// What the runtime calls a `cudaIpcMemHandle_t` or a `cudaIpcEventHandle_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpcHandle([u8; 64]);

/// Numbers that a handle holds.
pub type HandleFields = [u64; 5];

impl IpcHandle {
    /// A handle that holds these numbers.
    pub fn new(fields: HandleFields) -> Self {
        let mut bytes = [0; 64];
        for (place, field) in bytes.chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_ne_bytes());
        }
        Self(bytes)
    }

    /// The numbers in it.
    pub fn fields(&self) -> HandleFields {
        let mut fields = HandleFields::default();
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
pub struct SharedBytes {
    file: File,
    bytes: u64,
    inode: u64,
}

/// Bytes that are copied at once.
const CHUNK: usize = 1 << 20;

/// What the files of pages are called, with the number of their device behind it.
const PAGE: &str = "stalloc-dryrun-page-";

impl SharedBytes {
    /// A new one, of which nothing is known.
    pub fn new(bytes: u64) -> io::Result<Self> {
        Self::create(bytes, c"stalloc-dryrun")
    }

    /// A page of a device. The file's name says so, for whoever gets a descriptor of it.
    pub fn page(bytes: u64, device: u32) -> io::Result<Self> {
        Self::create(bytes, &CString::new(format!("{PAGE}{device}"))?)
    }

    fn create(bytes: u64, name: &CStr) -> io::Result<Self> {
        // SAFETY: the name ends with zero; the answer is checked.
        let descriptor = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
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

    /// A descriptor of it for others, theirs to close.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    /// The page that a descriptor is of, and its device. The descriptor stays the caller's.
    pub fn import(descriptor: BorrowedFd<'_>) -> io::Result<(Self, u32)> {
        let name = fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))?;
        // As in "/memfd:stalloc-dryrun-page-0 (deleted)".
        let device = name.to_str().and_then(|name| name.strip_prefix("/memfd:")?.strip_prefix(PAGE)?.split(' ').next());
        let device = device.and_then(|device| device.parse().ok()).ok_or(io::ErrorKind::InvalidInput)?;
        let file = File::from(descriptor.try_clone_to_owned()?);
        let about = file.metadata()?;
        Ok((Self { file, bytes: about.len() / 2, inode: about.ino() }, device))
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
            // A hole frees its room; the length stays, by which others know what they open.
            let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            let length = libc::off_t::try_from(2 * self.bytes).unwrap_or(0);
            // SAFETY: takes numbers only, and the file is open.
            unsafe { libc::fallocate(self.file.as_raw_fd(), how, 0, length) };
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
