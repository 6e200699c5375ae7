use super::*;

const MIB: u64 = 1 << 20;

/// A job of so many steps: 64 MiB that stay, activations that differ by step, and what `keeps` says each step leaves for good.
/// What was said, with the steps that had begun.
fn job(steps: u64, keeps: impl Fn(u64) -> u64) -> Vec<(u64, Growing)> {
    let mut watch = GrowthWatch::new();
    watch.alloc(1, 64 * MIB, StackId::NONE);
    let mut said = Vec::new();
    for step in 0..steps {
        said.extend(watch.step_begin().map(|growing| (step, growing)));
        let activations = 1_000_000 + step;
        watch.alloc(activations, (8 + 5 * step % 13) * MIB, StackId(1));
        if keeps(step) > 0 {
            watch.alloc(2_000_000 + step, keeps(step), StackId(2));
        }
        // Lives on into the next step, as a batch that was fetched ahead does.
        watch.alloc(3_000_000 + step, (step % 3) * MIB, StackId(3));
        watch.free(2_999_999 + step);
        watch.free(activations);
    }
    said
}

#[test]
fn a_job_that_keeps_something_of_every_step_is_said_to_grow_once() {
    let said = job(100, |_| 4 * MIB);
    let [(step, growing)] = said[..] else { panic!("{said:?}") };
    assert_eq!(growing, Growing { bytes_per_step: 4 * MIB, steps: CLIMBING_LIVE, stack: StackId(2) });
    assert!(step <= CLIMBING_LIVE as u64 + 4, "step {step}");
}

#[test]
fn stairs_are_growth_where_one_step_of_four_keeps_something() {
    let said = job(100, |step| if step % 4 == 1 { 8 * MIB } else { 0 });
    assert!(matches!(said[..], [(_, growing)] if growing.stack == StackId(2)), "{said:?}");
    let kept = |until: u64| (0..60).map(|step: u64| step.min(until) / 4 * MIB).collect::<Vec<_>>();
    assert!(climb(&kept(60), 64 * MIB).is_some());
    assert_eq!(climb(&kept(30), 64 * MIB), None, "a cache that has been full for long");
    let tasks = |each: u64| (0..60).map(|step: u64| step / each * MIB).collect::<Vec<_>>();
    assert!(climb(&tasks(9), 64 * MIB).is_some(), "what each task of nine steps keeps");
    assert_eq!(climb(&tasks(14), 64 * MIB), None, "four times are too few");
    let ever_later = (0..60).map(|step| f64::from(8 * step).sqrt() as u64 / 2 * MIB).collect::<Vec<_>>();
    assert_eq!(climb(&ever_later, 64 * MIB), None, "what is kept ever less often");
}

#[test]
fn a_healthy_job_one_whose_states_come_late_and_a_cache_that_fills_up_are_not() {
    assert_eq!(job(200, |_| 0), []);
    assert_eq!(job(200, |step| if step < 10 { 9 * MIB } else { 0 }), [], "the first steps");
    assert_eq!(job(200, |step| if step == 40 { 500 * MIB } else { 0 }), [], "states that come late");
    assert_eq!(job(200, |step| if step % 5 == 0 { 50 * MIB } else { 0 }), [], "one step in five");
    assert_eq!(job(400, |step| if step < 17 { 9 * MIB } else { 0 }), [], "a cache that is full soon");
    assert_eq!(job(400, |step| (64 * MIB) >> step.min(40)), [], "a cache that is filled ever more slowly");
    assert_eq!(job(400, |_| 512), [], "a few bytes a step");
}

#[test]
fn a_job_that_grows_after_long_is_found_too() {
    let said = job(300, |step| if step > 200 { MIB } else { 0 });
    assert!(matches!(said[..], [(step, _)] if step < 200 + CLIMBING_LIVE as u64 + 6), "{said:?}");
}

#[test]
fn stacks_that_are_told_late_go_to_their_own_block() {
    let mut watch = GrowthWatch::new();
    let mut found = None;
    for step in 0..40u64 {
        found = found.or(watch.step_begin());
        watch.alloc(7, MIB, StackId::NONE);
        watch.free(7);
        watch.alloc(100 + step, MIB, StackId::NONE);
        // Of the first, which is gone: its address has another block in the next step.
        watch.stack(Whose::Nth(2 * step), StackId(9));
        if step % 2 == 0 {
            watch.stack(Whose::Nth(2 * step + 1), StackId(5));
        } else {
            watch.stack(Whose::LivesAt(100 + step), StackId(5));
        }
        watch.stack(Whose::Failed, StackId(9));
    }
    assert_eq!(found.map(|growing| growing.stack), Some(StackId(5)));
}

#[test]
fn without_steps_memory_is_bounded_and_odd_events_do_no_harm() {
    let mut watch = GrowthWatch::new();
    for _ in 0..RecentAddresses::MOST + 10 {
        watch.alloc(1, u64::MAX, StackId::NONE);
    }
    assert_eq!((watch.live.len(), watch.recent.addresses.len()), (1, RecentAddresses::MOST));
    watch.free(2);
    watch.stack(Whose::Nth(0), StackId(1));
    watch.stack(Whose::Nth(u64::MAX), StackId(1));
    assert_eq!(watch.step_begin(), None);
}

#[test]
fn only_what_adds_in_half_of_three_steps_or_more_after_the_first_two_climbs() {
    let found = |first, last, bytes| Some(Climb { first, last, bytes });
    assert_eq!(climb(&[9, 9, 10, 20, 30, 40], 100), found(2, 5, 30));
    assert_eq!(climb(&[9, 9, 10, 20, 30], 100), None, "two steps");
    assert_eq!(climb(&[9, 9, 50, 10, 20, 30, 40], 100), found(3, 6, 30), "from the last fall on");
    assert_eq!(climb(&[0, 0, 10, 10, 10, 12, 14], 100), found(2, 6, 4));
    assert_eq!(climb(&[0, 0, 10, 10, 10, 10, 14], 100), None, "one of four");
    assert_eq!((climb(&[], 100), climb(&[7], 100)), (None, None));
    // A ten-thousandth of the peak is worth a word, less is not.
    let slow = [0, 0, 0, 10, 20, 30];
    assert_eq!((climb(&slow, 100_000), climb(&slow, 110_000)), (found(2, 5, 30), None));
    assert_eq!(found(2, 5, 31).map(|climb| (climb.steps(), climb.bytes_per_step())), Some((3, 10)));
}

#[test]
fn the_addresses_of_this_step_and_the_one_before_are_known_by_number() {
    let mut recent = RecentAddresses::default();
    [11, 12].into_iter().for_each(|address| recent.push(address));
    recent.forget_all_but_the_last_step();
    recent.push(13);
    assert_eq!((0..4).map(|number| recent.address(number)).collect::<Vec<_>>(), [Some(11), Some(12), Some(13), None]);
    recent.forget_all_but_the_last_step();
    assert_eq!((0..4).map(|number| recent.address(number)).collect::<Vec<_>>(), [None, None, Some(13), None]);
    assert_eq!(recent.next(), 3);
    (0..RecentAddresses::MOST as u64).for_each(|address| recent.push(address));
    assert_eq!((recent.addresses.len(), recent.address(2), recent.address(3)), (RecentAddresses::MOST, None, Some(0)));
}

#[test]
fn the_stack_that_is_named_left_the_most_bytes_of_all_steps() {
    let mut watch = GrowthWatch::new();
    let found = (0..100).find_map(|step| {
        // One stack leaves three small blocks of each step, another a larger one of every fourth.
        (0..3).for_each(|n| watch.alloc(10 * step + n, 2 * MIB, StackId(2)));
        if step % 4 == 0 {
            watch.alloc(10 * step + 5, 9 * MIB, StackId(7));
        }
        watch.step_begin()
    });
    assert_eq!(found.map(|growing| growing.stack), Some(StackId(2)));
}

#[test]
fn the_stack_of_a_block_that_is_gone_is_not_that_of_the_next_one_at_its_address() {
    let mut watch = GrowthWatch::new();
    let found = (0..40).find_map(|step| {
        watch.alloc(100 + step, MIB, StackId::NONE);
        watch.free(100 + step);
        watch.alloc(100 + step, MIB, StackId::NONE);
        watch.stack(Whose::Nth(2 * step + 1), StackId(5));
        watch.stack(Whose::Nth(2 * step), StackId(9));
        watch.step_begin()
    });
    assert_eq!(found.map(|growing| growing.stack), Some(StackId(5)));
}

#[test]
fn the_stack_that_is_named_left_its_bytes_in_the_steps_that_climb() {
    // All climb, from the first that may to the one before the last: that one's blocks may yet be given back.
    let (first, last) = (WARM_UP as u32, (WARM_UP + CLIMBING_LIVE) as u32);
    let mut watch = GrowthWatch::new();
    let found = (0..=last).find_map(|step| {
        watch.alloc(u64::from(step), MIB, StackId(100 + step));
        if step <= first || step == last {
            watch.alloc(1000 + u64::from(step), if step == first { 3 * MIB } else { 9 * MIB }, StackId(1 + step));
        }
        watch.step_begin().map(|growing| (step, growing))
    });
    let growing = Growing { bytes_per_step: 23 * MIB / 20, steps: CLIMBING_LIVE, stack: StackId(1 + first) };
    assert_eq!(found, Some((last, growing)));
}

#[test]
fn what_has_risen_as_far_and_was_let_go_twice_before_is_no_growth() {
    let epochs = |tops: &[u64]| tops.iter().flat_map(|&top| (0..=top).map(|step| step * MIB)).collect::<Vec<_>>();
    assert_eq!(climb(&epochs(&[12, 12, 12]), 64 * MIB), None, "each epoch's predictions");
    assert_eq!(climb(&epochs(&[12, 12, 7]), 64 * MIB), None, "the third epoch is not over");
    let found = climb(&epochs(&[12, 12]), 64 * MIB);
    assert_eq!(found.map(|climb| climb.bytes), Some(12 * MIB), "once is no rule");
    let found = climb(&epochs(&[12, 12, 40]), 64 * MIB);
    assert_eq!(found.map(|climb| climb.bytes), Some(40 * MIB), "it has never risen as far");
}

/// A recording of so many steps of a job that keeps so many bytes of each step, and 64 MiB from the first one on.
fn recorded(steps: u64, keeps: impl Fn(u64) -> u64) -> Trace {
    let mut builder = crate::TraceBuilder::new(0);
    let alloc = |address, size| crate::RawEvent::Alloc { address, size, stream: 0, stack: StackId::NONE };
    let free = |address| crate::RawEvent::FreeCompleted { address, size: 0, stream: 0 };
    let mut say = |event| builder.push(event, None);
    say(alloc(1, 64 * MIB));
    for step in 0..steps {
        say(crate::RawEvent::Mark(Mark::StepBegin));
        let activations = 1000 + step;
        say(alloc(activations, (8 + 5 * step % 13) * MIB));
        if step == 0 {
            say(alloc(2, 128 * MIB));
        }
        if keeps(step) > 0 {
            say(alloc(2000 + step, keeps(step)));
        }
        say(free(activations));
        say(crate::RawEvent::Mark(Mark::StepEnd));
    }
    for step in 0..steps {
        say(free(2000 + step));
    }
    builder.finish()
}

/// A recording of three steps, in the last of which something goes that was made before the first.
fn falling() -> Trace {
    let mut builder = crate::TraceBuilder::new(0);
    builder.push(crate::RawEvent::Alloc { address: 1, size: 64 * MIB, stream: 0, stack: StackId::NONE }, None);
    for step in 0..3 {
        builder.push(crate::RawEvent::Mark(Mark::StepBegin), None);
        if step == 2 {
            builder.push(crate::RawEvent::FreeCompleted { address: 1, size: 0, stream: 0 }, None);
        }
        builder.push(crate::RawEvent::Mark(Mark::StepEnd), None);
    }
    builder.finish()
}

#[test]
fn a_recordings_last_steps_show_what_each_adds_to_what_stays() {
    for steps in [6, 8, 12] {
        assert_eq!(rise(&recorded(steps, |_| 4 * MIB)), Some(4 * MIB), "{steps} steps");
        assert_eq!(rise(&recorded(steps, |_| 0)), None, "{steps} steps");
        assert_eq!(rise(&recorded(steps, |step| if step == 0 { 90 * MIB } else { 0 })), None, "what comes late once");
        assert_eq!(rise(&recorded(steps, |_| 512)), None, "losses");
    }
    assert_eq!(rise(&falling()), None, "what stays falls");
    assert_eq!(rise(&recorded(8, |step| if step < 6 { 4 * MIB } else { 0 })), None, "full by now");
    assert_eq!(rise(&recorded(12, |step| if step < 3 { 4 * MIB } else { 0 })), None, "full by now");
    for steps in [0, 1, 2, 3] {
        assert_eq!(rise(&recorded(steps, |_| 4 * MIB)), None, "too few to say");
    }
}
