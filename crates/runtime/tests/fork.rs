//! A forked child of a process that is being served takes no lock, whoever held it when the child was made.
#![allow(clippy::undocumented_unsafe_blocks, clippy::expect_used)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::{ffi::c_int, ptr};

use stalloc_plan::{Entry, FOREVER, Plan, Section, SectionKind, Slot};
use stalloc_runtime::pluggable::{stalloc_free, stalloc_malloc};
use stalloc_runtime::{HOST, device_of, free, prepare, record_stream, report, serve, step_begin};

unsafe extern "C" {
    fn fork() -> c_int;
    fn alarm(seconds: u32) -> u32;
    fn waitpid(child: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn _exit(status: c_int) -> !;
}

/// What a child may do with what it inherited. Nothing here allocates from Rust's own allocator, whose lock may be held.
fn is_left_alone(inherited: u64, other: *mut std::ffi::c_void) -> bool {
    step_begin();
    record_stream(inherited, 7);
    let kept = free(inherited).is_none() && serve(HOST, 512, 0).is_none() && report(HOST).is_none();
    stalloc_free(other, 512, HOST, ptr::null_mut());
    kept && device_of(inherited) == Some(HOST)
}

/// One test, since it forks.
#[test]
fn a_forked_child_neither_waits_nor_gives_back_what_is_its_parents() {
    let section = Section {
        kind: SectionKind::Prologue,
        name: "prologue".into(),
        runs: 1,
        entries: vec![Entry::Slot(0)],
        releases: Vec::new(),
        followers: Vec::new(),
    };
    let slots = vec![Slot { size: 4096, offset: 0, stream: 0, lower: 0, upper: FOREVER }];
    let plan =
        Plan { alignment: 512, arena: 4096, lower_bound: 4096, slots, sections: vec![section], ..Plan::default() };
    assert!(prepare(HOST, plan));
    let inherited = serve(HOST, 4096, 0).expect("planned").address;
    let other = stalloc_malloc(8192, HOST, ptr::null_mut());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The locks are nearly always held.
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let address = stalloc_malloc(1024, HOST, ptr::null_mut());
                    stalloc_free(address, 1024, HOST, ptr::null_mut());
                }
            });
        }
        for _ in 0..40 {
            let child = unsafe { fork() };
            assert!(child >= 0);
            if child == 0 {
                unsafe { alarm(20) };
                let kept = is_left_alone(inherited, other);
                unsafe { _exit(if kept { 0 } else { 1 }) };
            }
            let mut status = -1;
            unsafe { waitpid(child, &mut status, 0) };
            if status != 0 {
                done.store(true, Ordering::Relaxed);
            }
            assert_eq!(status, 0, "a child waited for ever (14), or did what it must not (256)");
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(free(inherited).is_some(), "the parent has what it had");
    stalloc_free(other, 8192, HOST, ptr::null_mut());
}
