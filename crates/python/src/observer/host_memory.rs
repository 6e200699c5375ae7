//! Copies of the program's own memory that cannot fault, whatever became of it: a file that was cut off behind its mapping, a page that
//! was protected, memory that another thread gives back.

use std::ptr::with_exposed_provenance_mut;

/// The `bytes` at an address, if all of them can be read.
pub fn copy(address: usize, bytes: usize) -> Option<Vec<u8>> {
    let mut target = vec![0_u8; bytes];
    let is_read =
        bytes == 0 || by_kernel(address, &mut target).unwrap_or_else(|| through_file(address, &mut target) == Some(()));
    is_read.then_some(target)
}

/// As a debugger reads; none if the kernel refuses that to this process, as some containers make it.
fn by_kernel(address: usize, target: &mut [u8]) -> Option<bool> {
    let own = libc::iovec { iov_base: target.as_mut_ptr().cast(), iov_len: target.len() };
    let other = libc::iovec { iov_base: with_exposed_provenance_mut(address), iov_len: target.len() };
    // SAFETY: the kernel writes to `target` alone, and checks what it reads.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &raw const own, 1, &raw const other, 1, 0) };
    match usize::try_from(read) {
        Ok(read) => Some(read == target.len()),
        Err(_) if std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT) => Some(false),
        Err(_) => None,
    }
}

/// A write to a file in memory, which fails where memory cannot be read, and a read of the file.
fn through_file(address: usize, target: &mut [u8]) -> Option<()> {
    use std::os::fd::FromRawFd;
    use std::os::unix::fs::FileExt;

    // SAFETY: the name ends with zero; the descriptor is nobody else's.
    let file = unsafe {
        let descriptor = libc::memfd_create(c"stalloc".as_ptr(), libc::MFD_CLOEXEC);
        std::fs::File::from_raw_fd((descriptor >= 0).then_some(descriptor)?)
    };
    // SAFETY: the kernel checks what it reads.
    let written = unsafe {
        use std::os::fd::AsRawFd;
        libc::write(file.as_raw_fd(), with_exposed_provenance_mut::<libc::c_void>(address), target.len())
    };
    (usize::try_from(written) == Ok(target.len())).then(|| file.read_exact_at(target, 0).ok()).flatten()
}
