//! How much memory of the host may be page-locked: as much as the machine and the process's control groups have left. Processes take
//! theirs one after the other, so that none counts on what another is about to take.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::thread;
use std::time::Duration;

use stalloc_common::PrivateFolder;
use stalloc_device::Error;

/// Has memory taken if there is so much.
pub fn take<T>(bytes: u64, take: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    take_below(Path::new("/"), bytes, take)
}

fn take_below<T>(root: &Path, bytes: u64, take: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let _turn = turn();
    match available(root) {
        Some(available) if available < bytes => Err(Error::HostMemory { requested: bytes, available }),
        _ => take(),
    }
}

/// Bytes of the host's memory that can be had now; `None` if the system does not say.
pub fn left() -> Option<u64> {
    available(Path::new("/"))
}

/// This process's turn, until it is dropped. Where it cannot be had, or another process hangs in its own, it is taken all the same.
fn turn() -> Option<File> {
    let folder = PrivateFolder::of_machine("host_memory").ok()?;
    let file = File::open(folder.path()).ok()?;
    for _ in 0..600 {
        match file.try_lock() {
            Ok(()) => return Some(file),
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(100)),
            Err(TryLockError::Error(_)) => return None,
        }
    }
    None
}

/// Bytes that can be had, below a root; `None` if the system does not say.
fn available(root: &Path) -> Option<u64> {
    let machine = field(&fs::read_to_string(root.join("proc/meminfo")).ok()?, "MemAvailable:").map(|kib| kib << 10);
    let group = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let groups = group.lines().filter_map(|line| of_groups(root, line));
    groups.chain(machine).min()
}

/// Bytes left in a control group and those above it, by a line of `/proc/self/cgroup`: number, controllers, path.
fn of_groups(root: &Path, line: &str) -> Option<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
    let (mount, limit, used) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max", "memory.current"),
        "memory" => ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
        _ => return None,
    };
    let mount = root.join(mount);
    // In a container the path can be one of the machine's, which is not there: its own group is where the mount begins.
    let folder = mount.join(path);
    let groups = folder.ancestors().take_while(|folder| folder.starts_with(&mount));
    let left = |folder: &Path| {
        let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
        let statistics = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        // The system takes cached files back before it lets a group run out.
        let cached = field(&statistics, "inactive_file").unwrap_or(0);
        Some(number(limit)?.saturating_sub(number(used)?.saturating_sub(cached)))
    };
    groups.filter_map(left).min()
}

/// The number behind a name in a text of lines.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests;
