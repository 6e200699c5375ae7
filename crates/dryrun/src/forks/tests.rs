use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::*;
use crate::{execution, memory};

#[test]
fn a_child_that_is_forked_while_another_thread_changes_the_memory_can_use_it() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    drop((memory::memory(), execution::execution()));
    let busy = std::thread::spawn(|| {
        while !IS_OVER.load(Relaxed) {
            let held = (memory::memory(), execution::execution());
            sleep(Duration::from_micros(400));
            drop(held);
            sleep(Duration::from_micros(200));
        }
    });
    for _ in 0..30 {
        // SAFETY: the child takes two locks and ends at once, by itself or by the alarm.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::alarm(20);
                drop((memory::memory(), execution::execution()));
                libc::_exit(0);
            }
            let mut status = 0;
            libc::waitpid(child, &raw mut status, 0);
            status
        };
        assert_eq!(status, 0);
    }
    IS_OVER.store(true, Relaxed);
    busy.join().unwrap();
}
