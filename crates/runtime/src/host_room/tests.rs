#![allow(clippy::unwrap_used)]

use super::*;

/// A machine of so many KiB free, with these files besides.
fn machine(kib: u64, files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let meminfo = format!("MemTotal: 99999999 kB\nMemAvailable:  {kib} kB\n");
    for (name, text) in files.iter().chain([&("proc/meminfo", meminfo.as_str())]) {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

#[test]
fn the_least_of_machine_and_control_groups_can_be_had() {
    let plain = machine(1000, &[]);
    assert_eq!(available(plain.path()), Some(1_024_000));
    let unlimited = [("proc/self/cgroup", "0::/jobs/one\n"), ("sys/fs/cgroup/jobs/one/memory.max", "max\n")];
    assert_eq!(available(machine(1000, &unlimited).path()), Some(1_024_000));
    let group = [
        ("proc/self/cgroup", "0::/jobs/one\n"),
        ("sys/fs/cgroup/jobs/one/memory.max", "900000\n"),
        ("sys/fs/cgroup/jobs/one/memory.current", "300000\n"),
        ("sys/fs/cgroup/jobs/one/memory.stat", "anon 5\ninactive_file 100000\n"),
        ("sys/fs/cgroup/jobs/memory.max", "950000\n"),
        ("sys/fs/cgroup/jobs/memory.current", "400000\n"),
    ];
    assert_eq!(available(machine(1000, &group[..4]).path()), Some(700_000));
    assert_eq!(available(machine(1000, &group).path()), Some(550_000), "the group above has less");
    let older = [
        ("proc/self/cgroup", "9:cpu:/x\n4:memory:/docker/abc\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "500000\n"),
        ("sys/fs/cgroup/memory/memory.usage_in_bytes", "600000\n"),
    ];
    assert_eq!(available(machine(1000, &older).path()), Some(0), "in a container, of version 1");
    assert_eq!(available(tempfile::tempdir().unwrap().path()), None);
}

#[test]
fn more_than_there_is_is_refused_with_both_figures_before_anything_is_taken() {
    let refused = take(1 << 60, || -> Result<(), Error> { panic!("it is taken") }).unwrap_err();
    assert!(matches!(refused, Error::HostMemory { requested, available } if requested == 1 << 60 && available > 0));
    assert_eq!(take(1 << 20, || Ok(7)), Ok(7));
}

#[test]
fn ranks_that_take_at_once_share_what_their_control_group_has_left() {
    let group = [
        ("proc/self/cgroup", "0::/job\n"),
        ("sys/fs/cgroup/job/memory.max", "10000000\n"),
        ("sys/fs/cgroup/job/memory.current", "0\n"),
    ];
    let machine = machine(1 << 20, &group);
    let current = machine.path().join("sys/fs/cgroup/job/memory.current");
    let rank = || {
        let pin = || {
            let before: u64 = fs::read_to_string(&current).unwrap().trim().parse().unwrap();
            thread::sleep(Duration::from_millis(5));
            fs::write(&current, (before + 3_000_000).to_string()).unwrap();
            Ok(())
        };
        take_below(machine.path(), 3_000_000, pin)
    };
    let answers: Vec<_> = thread::scope(|scope| {
        let ranks: Vec<_> = (0..8).map(|_| scope.spawn(rank)).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    let refused = Err(Error::HostMemory { requested: 3_000_000, available: 1_000_000 });
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 3, "{answers:?}");
    assert_eq!(answers.iter().filter(|&answer| *answer == refused).count(), 5, "{answers:?}");
}
