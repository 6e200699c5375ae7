//! What is wrong with jobs that were made by hand.

use stalloc_trace::{Frame, RawEvent, SegmentAction, StackId, Trace};

use super::{Maker, input};
use crate::figures::{DeviceFigures, Verdict};
use crate::growth::hold_both_passes;
use crate::steps::StepSpan;
use crate::{Report, Screen};

const MIB: u64 = 1 << 20;

fn device(trace: Trace) -> DeviceFigures {
    let inputs = [input("made", trace)];
    Report::new(&inputs).figures().inputs[0].devices[0].clone()
}

/// Steps that each use 8 MiB and keep what `kept` says, then a request of 100 MiB that fails if `fails`.
fn job(kept: impl Fn(u64) -> u64, fails: bool) -> DeviceFigures {
    let mut maker = Maker::new();
    let (net, keeps) = (maker.stack("net.py", 7, "forward"), maker.stack("train.py", 9, "<module>"));
    maker.segment(SegmentAction::Alloc, 1 << 40, 200 * MIB);
    maker.alloc(1 << 40, 20 * MIB, StackId::NONE);
    for step in 0..8u64 {
        maker.event(RawEvent::Mark(stalloc_trace::Mark::StepBegin));
        let base = (1 << 40) + 30 * MIB;
        maker.alloc(base, 8 * MIB, net);
        if kept(step) > 0 {
            maker.alloc((1 << 40) + (50 + 10 * step) * MIB, kept(step), keeps);
        }
        maker.free(base);
        maker.event(RawEvent::Mark(stalloc_trace::Mark::StepEnd));
    }
    if fails {
        maker.event(RawEvent::OutOfMemory { size: 100 * MIB, device_free: 0, stack: net });
    }
    device(maker.trace())
}

#[test]
fn what_every_step_keeps_is_growth_and_is_named_by_its_line() {
    for fails in [false, true] {
        let found = job(|_| 4 * MIB, fails);
        let growth = found.growth.as_ref().expect("it grows");
        assert_eq!((found.verdict, growth.bytes_per_step), (Verdict::Growth, 4 * MIB));
        assert_eq!(&*growth.sites[0].site, "train.py:9 <module>");
        assert!(found.headline.contains("4.0 MiB a step: train.py:9 <module>"), "{}", found.headline);
    }
}

#[test]
fn what_the_first_steps_keep_or_what_is_given_back_now_and_then_is_no_growth() {
    assert_eq!(job(|step| if step < 2 { 9 * MIB } else { 0 }, false).growth, None);
    assert_eq!(job(|_| 512, false).growth, None, "a few bytes a step are not worth a word");
    let mut maker = Maker::new();
    for step in 0..9u64 {
        maker.event(RawEvent::Mark(stalloc_trace::Mark::StepBegin));
        maker.alloc((step + 1) << 30, 9 * MIB, StackId::NONE);
        if step % 3 == 2 {
            for old in step - 2..=step {
                maker.free((old + 1) << 30);
            }
        }
    }
    assert_eq!(device(maker.trace()).growth, None);
}

#[test]
fn a_request_that_the_empty_memory_would_have_served_is_fragmentation_and_a_larger_one_too_large() {
    let fail = |size: u64, each: u64| {
        let mut maker = Maker::new();
        let (held, asks) = (maker.stack("net.py", 3, "build"), maker.stack("net.py", 8, "forward"));
        maker.segment(SegmentAction::Alloc, 0, 400 * MIB);
        for i in 0..10 {
            maker.alloc(i * 40 * MIB, each, held);
        }
        maker.event(RawEvent::OutOfMemory { size, device_free: 10 * MIB, stack: asks });
        device(maker.trace())
    };
    let fragmented = fail(100 * MIB, 20 * MIB);
    assert_eq!(fragmented.verdict, Verdict::Fragmentation);
    assert!(fragmented.headline.contains("needed 300 MiB of the 410 MiB"), "{}", fragmented.headline);
    let first = &fragmented.advice[0];
    assert!(first.command.is_some(), "{:?}", fragmented.advice);
    assert!(fragmented.advice.iter().all(|one| !one.text.contains("GMLake")), "{:?}", fragmented.advice);
    let large = fail(150 * MIB, 30 * MIB);
    assert_eq!((large.verdict, large.peak_allocated), (Verdict::TooLarge, 450 * MIB));
    let levers = |device: &DeviceFigures| device.advice[0].command.clone().expect("what to try");
    assert_eq!(levers(&large), "stalloc levers --dry-run GPU -- COMMAND");
    let last = large.advice.last().and_then(|advice| advice.command.as_deref());
    assert_eq!(last, Some("stalloc run --fit -- COMMAND"));
    let sites: Vec<_> = large.peak_by_site.iter().map(|one| (&*one.site, one.bytes, one.blocks)).collect();
    assert_eq!(sites, [("net.py:3 build", 300 * MIB, 10), ("net.py:8 forward", 150 * MIB, 1)]);
    let recorded = &large.allocators[0];
    assert_eq!((recorded.allocator, recorded.peak_allocated, recorded.peak_reserved), ("actual", 300 * MIB, 400 * MIB));
    assert_eq!(
        fail(15 * MIB, 38 * MIB).verdict,
        Verdict::TooLarge,
        "15 MiB to spare are less than PyTorch takes at once"
    );
    let one = fail(300 * MIB, 20 * MIB);
    assert!(one.headline.contains("One request at net.py:8 forward asks for 300 MiB"), "{}", one.headline);
}

#[test]
fn a_job_that_failed_on_a_card_does_not_fit_that_card() {
    const GIB: u64 = 1 << 30;
    let mut maker = Maker::new();
    maker.segment(SegmentAction::Alloc, 0, 70 * GIB);
    maker.alloc(0, 70 * GIB, StackId::NONE);
    maker.event(RawEvent::OutOfMemory { size: 20 * GIB, device_free: 8 * GIB, stack: StackId::NONE });
    let found = device(maker.trace());
    let levers = found.advice[0].command.as_deref().expect("what to try");
    assert!(levers.contains("0-80gb --"), "{levers}");
    for one in &found.allocators {
        let fits: Vec<_> = one.fits.values().map(|fit| *fit == crate::Fit::Yes).collect();
        assert_eq!(fits, [true, false, false], "{} on 141, 40, 80 GB", one.allocator);
    }
    assert_eq!(&*found.peak_by_site[0].site, "unknown");
}

#[test]
fn a_validation_that_no_step_mark_knows_grows_by_the_turns_of_its_loop() {
    let mut maker = Maker::new();
    let mut stack = |frames: &[(&str, u32, &str)]| {
        let mut ids = Vec::new();
        for (file, line, function) in frames {
            ids.push(Frame { file: maker.builder.string(file), function: maker.builder.string(function), line: *line });
        }
        maker.builder.stack(&ids)
    };
    let call = ("torch/nn/modules/module.py", 1, "_call_impl");
    let inputs = stack(&[("eval.py", 5, "<module>")]);
    let layers = [
        stack(&[("net.py", 3, "forward"), call, ("eval.py", 6, "<module>")]),
        stack(&[("net.py", 4, "forward"), call, ("eval.py", 6, "<module>")]),
    ];
    for turn in 0..9u64 {
        let base = (turn + 1) << 40;
        maker.alloc(base, MIB, inputs);
        for i in 0..6u64 {
            maker.alloc(base + (i + 1) * (1 << 30), 4 * MIB, layers[i as usize % 2]);
        }
    }
    let growth = device(maker.trace()).growth.expect("it grows");
    assert_eq!(growth.bytes_per_step, 25 * MIB, "a turn of the loop over batches, not of that over layers");
}

#[test]
fn layers_of_one_pass_are_no_growth_where_a_recording_leaves_out_pytorchs_own_frames() {
    let mut maker = Maker::new();
    let mut layer = |line| {
        let frames = [("block.py", line, "forward"), ("net.py", 9, "forward"), ("eval.py", 6, "<module>")].map(
            |(file, line, function)| Frame {
                file: maker.builder.string(file),
                function: maker.builder.string(function),
                line,
            },
        );
        maker.builder.stack(&frames)
    };
    let lines = [layer(3), layer(4)];
    for place in 0..54u64 {
        maker.alloc((place + 1) << 40, 4 * MIB, lines[place as usize % 2]);
    }
    assert_eq!(device(maker.trace()).growth, None);
}

#[test]
fn micro_batches_that_pile_up_in_each_step_are_no_growth() {
    let pile = |marked: bool| {
        let mut maker = Maker::new();
        let lines = [maker.stack("train.py", 5, "<module>"), maker.stack("train.py", 6, "<module>")];
        for step in 0..3u64 {
            if marked {
                maker.event(RawEvent::Mark(stalloc_trace::Mark::StepBegin));
            }
            let address = |micro: u64, i: u64| (step + 1) << 44 | (micro + 1) << 38 | i << 32;
            for (micro, i) in (0..12).flat_map(|micro| [(micro, 0), (micro, 1)]) {
                maker.alloc(address(micro, i), 8 * MIB, lines[i as usize]);
            }
            if marked {
                (0..12).flat_map(|micro| [(micro, 0), (micro, 1)]).for_each(|(micro, i)| maker.free(address(micro, i)));
                maker.event(RawEvent::Mark(stalloc_trace::Mark::StepEnd));
            }
        }
        device(maker.trace()).growth
    };
    assert_eq!(pile(true), None, "they are gone before the next step");
    assert!(pile(false).is_some(), "nothing is given back");
}

#[test]
fn layers_of_one_pass_are_no_steps_of_a_recording_without_marks() {
    let are_steps = |files: [&str; 2]| {
        let mut maker = Maker::new();
        let stacks = files.map(|file| if file.is_empty() { StackId::NONE } else { maker.stack(file, 1, "apply") });
        (0..24u64).for_each(|i| maker.alloc(i << 30, MIB, stacks[i as usize % 2]));
        let trace = maker.trace();
        let spans = [(0, 8), (8, 16), (16, 24)];
        hold_both_passes(&trace, &spans.map(|(begin, end)| StepSpan { begin, end, kind: String::new() }))
    };
    assert!(are_steps(["train.py", ""]), "a thread without Python goes backward");
    assert!(are_steps(["train.py", "torch/autograd/graph.py"]));
    assert!(are_steps(["", ""]), "without stacks nobody knows");
    assert!(!are_steps(["functions.cpp", "engine.cpp"]), "layers of a backward pass");
    assert!(!are_steps(["train.py", "net.py"]), "of a forward pass");
}

#[test]
fn the_states_that_the_user_s_own_optimizer_makes_in_its_first_step_are_no_growth() {
    let mut maker = Maker::new();
    let mut state = |line| {
        let frames = [
            ("/job/my_optimizer.py", line, "step"),
            ("/venv/site-packages/torch/optim/optimizer.py", 493, "wrapper"),
            ("/job/train.py", 9, "main"),
        ];
        let frames = frames.map(|(file, line, function)| Frame {
            file: maker.builder.string(file),
            function: maker.builder.string(function),
            line,
        });
        maker.builder.stack(&frames)
    };
    let states = [state(74), state(75)];
    for i in 0..40u64 {
        maker.alloc(i << 30, 4 * MIB, states[i as usize % 2]);
    }
    assert_eq!(device(maker.trace()).growth, None, "it is a loop over parameters");
}

#[test]
fn a_tensor_that_is_made_anew_larger_each_time_is_growth() {
    let mut maker = Maker::new();
    let line = maker.stack("model.py", 14, "forward");
    for token in 1..=40u64 {
        maker.alloc(token << 40, 8 * MIB * token, line);
        if token > 1 {
            maker.free((token - 1) << 40);
        }
    }
    maker.event(RawEvent::OutOfMemory { size: 8 * MIB * 41, device_free: 0, stack: line });
    maker.free(40 << 40); // as a program does that ends
    let found = device(maker.trace());
    assert_eq!((found.verdict, found.cause), (Verdict::Growth, Some("enlarged")), "{}", found.headline);
    assert!(found.headline.contains("model.py:14 forward makes it anew"), "{}", found.headline);
    assert!(found.growth.is_some_and(|growth| growth.bytes_per_step >= 8 * MIB && growth.steps >= 40));
}

#[test]
fn a_leak_fits_no_card_and_the_step_in_which_each_is_full_is_said() {
    let found = job(|_| 4 * MIB, true);
    for one in &found.allocators {
        assert!(one.fits.values().all(|fit| *fit == crate::Fit::No), "{}", one.allocator);
        let (small, large) = (one.dies_at_step["40"], one.dies_at_step["80"]);
        // 39.4 GiB more, of 4 MiB a step.
        assert!((10_000..10_400).contains(&(large - small)), "{small} {large}");
    }
}

#[test]
fn a_recording_that_was_cut_off_is_not_healthy() {
    let cut = |is_cut: bool| {
        let mut maker = Maker::new();
        maker.alloc(0, 9 * MIB, StackId::NONE);
        let mut trace = maker.trace();
        trace.is_cut = is_cut;
        device(trace)
    };
    let (whole, cut) = (cut(false), cut(true));
    assert_eq!((whole.verdict, whole.cause), (Verdict::Healthy, None));
    assert_eq!((cut.verdict, cut.cause), (Verdict::Unknown, Some("cut_off")));
    assert!(cut.headline.starts_with("Cut off"), "{}", cut.headline);
}

#[test]
fn a_program_that_an_exception_ended_before_a_step_is_not_judged_as_a_job() {
    let mut maker = Maker::new();
    maker.alloc(0, 9 * MIB, StackId::NONE);
    let mut trace = maker.trace();
    trace.metadata.insert("ended_by".into(), "ValueError at train.py:31 main".into());
    let found = device(trace);
    assert_eq!((found.verdict, found.cause), (Verdict::Unknown, Some("failed")));
    assert!(found.headline.contains("by ValueError at train.py:31 main before its first step"), "{}", found.headline);
}

/// A job that holds 300 of 800 MiB when a request of 600 fails, with what else was known then.
fn known(facts: &str) -> DeviceFigures {
    let mut maker = Maker::new();
    let line = maker.stack("train.py", 3, "main");
    maker.segment(SegmentAction::Alloc, 0, 300 * MIB);
    maker.alloc(0, 300 * MIB, line);
    maker.event(RawEvent::OutOfMemory { size: 600 * MIB, device_free: 500 * MIB, stack: line });
    let mut trace = maker.trace();
    trace.facts = Some(facts.to_owned());
    device(trace)
}

#[test]
fn what_was_known_when_memory_ran_out_decides_and_what_is_odd_is_left_aside() {
    let found = known(
        r#"{"total": 3221225472, "free": 524288000, "reserved": 314572800, "pid": 1, "processes": [
        {"pid": 1, "bytes": 5}, {"pid": 7, "name": "python serve.py", "bytes": 1900000000}]}"#,
    );
    assert_eq!((found.verdict, found.cause), (Verdict::TooLarge, Some("other_processes")));
    assert!(found.facts[0].contains("Process 7 (python serve.py) has 1.77 GiB"), "{:?}", found.facts);
    let ranks = known(
        r#"{"total": 3221225472, "free": 524288000, "reserved": 314572800, "pid": 1, "processes": [
        {"pid": 7, "name": "python train.py", "bytes": 1000000000}, {"pid": 8, "name": "python train.py", "bytes": 900000000}]}"#,
    );
    assert!(ranks.facts[0].contains("2 processes (python train.py) have 1.77 GiB"), "{:?}", ranks.facts);
    let held = r#"{"holders": [{"kind": "exception", "name": "the exception being handled (traceback frame train.py:3)",
        "bytes": 209715200, "tensors": 4, "addresses": [0]}]}"#;
    let found = known(held);
    assert_eq!((found.verdict, found.cause), (Verdict::TooLarge, Some("exception")));
    assert_eq!(found.holders[0].site.as_deref(), Some("train.py:3 main"));
    for odd in ["", "[]", "{\"device\": 3}", "{\"holders\": 3}", "{\"total\": -1}"] {
        let found = known(odd);
        assert_eq!((found.verdict, found.holders.len()), (Verdict::TooLarge, 0), "{odd}");
    }
}

#[test]
fn what_is_kept_under_keys_is_bounded_whatever_it_is_called() {
    let code = |is_mapping: bool| {
        let facts = format!(
            r#"{{"holders": [{{"kind": "container", "name": "OrderedDict `known`", "bytes": 314572800, "tensors": 20,
                "is_loaded": true, "is_filled": true, "is_mapping": {is_mapping}, "addresses": [0]}}]}}"#
        );
        let mut trace = kept_in_steps();
        trace.facts = Some(facts);
        device(trace).advice[0].command.clone().unwrap_or_default()
    };
    assert!(code(true).contains("cache.pop"), "{}", code(true));
    assert!(code(false).contains(".detach().cpu()"), "{}", code(false));
}

/// Steps that keep 20 MiB each, until one of 600 MiB fails.
fn kept_in_steps() -> Trace {
    let mut maker = Maker::new();
    let line = maker.stack("train.py", 3, "main");
    maker.segment(SegmentAction::Alloc, 0, 300 * MIB);
    for step in 0..15u64 {
        maker.event(RawEvent::Mark(stalloc_trace::Mark::StepBegin));
        maker.alloc(step * 20 * MIB, 20 * MIB, line);
    }
    maker.event(RawEvent::OutOfMemory { size: 600 * MIB, device_free: 0, stack: line });
    maker.trace()
}

#[test]
fn what_a_training_asked_for_says_nothing_of_an_evaluation() {
    let cause = |facts: &str, evaluated: u64| {
        let mut maker = Maker::new();
        let line = maker.stack("net.py", 9, "distances");
        maker.segment(SegmentAction::Alloc, 0, 300 * MIB);
        for turn in 0..40 + evaluated {
            maker.alloc(0, 2 * MIB, line);
            maker.free(0);
            if turn < 40 {
                maker.alloc(0, MIB, StackId::NONE); // of a backward pass
                maker.free(0);
            }
        }
        maker.alloc(0, 300 * MIB, line);
        maker.event(RawEvent::OutOfMemory { size: 300 * MIB, device_free: 100 * MIB, stack: line });
        let mut trace = maker.trace();
        trace.facts = Some(facts.to_owned());
        let found = device(trace);
        (found.cause, found.advice.iter().any(|one| one.command.iter().any(|line| line.starts_with("stalloc levers"))))
    };
    assert_eq!(cause("{}", 0).0, Some("outlier"), "nobody saw whether it trains");
    assert_eq!(cause(r#"{"grad_enabled": true, "evaluating": false}"#, 0).0, Some("outlier"));
    assert_eq!(cause(r#"{"grad_enabled": false}"#, 0), (Some("one_request"), false));
    assert_eq!(cause(r#"{"grad_enabled": false}"#, 40).0, Some("outlier"), "a long one among many of the evaluation");
}

#[test]
fn what_a_library_could_not_get_is_no_fragmentation() {
    let mut maker = Maker::new();
    maker.segment(SegmentAction::Alloc, 0, 800 * MIB);
    maker.alloc(0, 600 * MIB, StackId::NONE);
    maker.event(RawEvent::OutOfMemory { size: 0, device_free: MIB, stack: StackId::NONE });
    let found = device(maker.trace());
    assert_eq!(found.verdict, Verdict::TooLarge, "{}", found.headline);
    assert!(!found.facts.join(" ").contains("in 0 tensors"), "{:?}", found.facts);
}

#[test]
fn a_share_is_called_most_only_where_it_is() {
    assert!(crate::words::most_of(6, 10).starts_with("Most of it"));
    assert!(crate::words::most_of(27, 100).starts_with("The largest part"));
}

#[test]
fn the_text_names_the_verdict_the_first_line_and_what_to_do_within_the_width() {
    let mut maker = Maker::new();
    let line =
        maker.stack("/home/me/project/with/a/rather/long/folder/name/train.py", 9, "a_function_of_a_rather_long_name");
    maker.alloc(0, 300 * MIB, line);
    maker.event(RawEvent::OutOfMemory { size: 900 * MIB, device_free: 10 * MIB, stack: line });
    let inputs = [input("job.trace", maker.trace())];
    let text = Report::new(&inputs).text(Screen { width: 60, height: 24 });
    assert!(text.starts_with("job.trace: too large\n"), "{text}");
    assert!(text.contains("PyTorch and "), "rows that agree are one: {text}");
    assert!(text.contains("train.py:9") && text.contains("a_function") && text.contains("What to do"), "{text}");
    for line in text.lines().filter(|line| !line.starts_with("       ")) {
        assert!(line.chars().count() <= 60, "{line}");
    }
}

#[test]
fn the_text_of_an_error_alone_has_a_verdict_and_a_command() {
    let report = |free: &str, unused: &str, others: &str| {
        let text = format!(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which {free} GiB is \
             free. {others}Of the allocated memory 60.00 GiB is allocated by PyTorch, and {unused} GiB is reserved by PyTorch but unallocated."
        );
        let Ok(stalloc_trace::Input::Recording(recording)) = stalloc_trace::read_bytes(text.as_bytes(), 1 << 30) else {
            panic!("{text}")
        };
        let inputs = [crate::prepare("error.txt", recording, &mut |_, _, _| {})];
        Report::new(&inputs).figures().inputs[0].devices[0].clone()
    };
    let pieces = report("0.50", "18.00", "");
    assert_eq!((pieces.verdict, pieces.cause), (Verdict::Fragmentation, Some("pieces")), "{}", pieces.headline);
    assert_eq!(pieces.advice[0].command.as_deref(), Some("stalloc run -- COMMAND"));
    let others = report("0.50", "0.10", "Process 7 has 18.00 GiB memory in use. ");
    assert_eq!(others.cause, Some("other_processes"), "{}", others.headline);
    let large = report("0.50", "0.10", "Process 7 has 1.00 GiB memory in use. ");
    assert_eq!((large.verdict, large.cause), (Verdict::TooLarge, Some("libraries")), "{}", large.headline);
    let unknown = report("1.21", "6.80", "");
    assert_eq!(unknown.cause, Some("pieces"), "no step is known, so none is the first: {}", unknown.headline);
    let limit = report("40.0", "0.60", "61.00 GiB allowed; ");
    assert_eq!(limit.cause, Some("limit"), "{}", limit.headline);
    assert!(
        limit.headline.starts_with("Too large: the job needed 62.0 GiB at once and had 61.0 GiB."),
        "{}",
        limit.headline
    );
    let commands: Vec<_> = report("17.0", "0.10", "").advice.into_iter().filter_map(|one| one.command).collect();
    assert!(commands.iter().any(|one| one.contains("--dry-run a100-80gb ")), "79.15 GiB is an A100: {commands:?}");
}

#[test]
fn a_failure_that_the_program_survived_says_so() {
    let mut maker = Maker::new();
    let line = maker.stack("train.py", 3, "main");
    maker.segment(SegmentAction::Alloc, 0, 300 * MIB);
    for step in 0..6u64 {
        maker.event(RawEvent::Mark(stalloc_trace::Mark::StepBegin));
        maker.alloc(step * MIB, MIB, line);
        if step == 2 {
            maker.event(RawEvent::OutOfMemory { size: 600 * MIB, device_free: 100 * MIB, stack: line });
        }
        maker.free(step * MIB);
        maker.event(RawEvent::Mark(stalloc_trace::Mark::StepEnd));
    }
    let headline = device(maker.trace()).headline;
    assert!(headline.ends_with("The program caught it and went on; steps after it: 3."), "{headline}");
}

#[test]
fn a_list_that_is_filled_after_the_last_step_is_growth_by_its_sizes_alone() {
    let verdict = |whole_steps: u64, fails_elsewhere: bool| {
        let mut maker = Maker::new();
        let (steps, fills) = (maker.stack("train.py", 3, "main"), maker.stack("train.py", 9, "validate"));
        maker.segment(SegmentAction::Alloc, 0, 300 * MIB);
        maker.alloc(1 << 40, 9 * MIB, steps);
        for step in 0..=whole_steps {
            maker.event(RawEvent::Mark(stalloc_trace::Mark::StepBegin));
            for one in 0..if step < whole_steps { 8 } else { 0 } {
                maker.alloc(one * 4 * MIB, 4 * MIB, steps);
                maker.free(one * 4 * MIB);
            }
        }
        for turn in 0..28u64 {
            maker.alloc(turn * 10 * MIB, 10 * MIB, if turn == 20 { fills } else { StackId::NONE });
        }
        let stack = if fails_elsewhere { steps } else { fills };
        maker.event(RawEvent::OutOfMemory { size: 40 * MIB, device_free: 0, stack });
        device(maker.trace())
    };
    let found = verdict(2, false);
    assert_eq!(found.verdict, Verdict::Growth, "{}", found.headline);
    assert!(
        found.headline.contains("10.0 MiB with each turn of the loop at train.py:9 validate"),
        "{}",
        found.headline
    );
    assert_eq!(
        verdict(2, true).verdict,
        Verdict::TooLarge,
        "what fails is not what was filled: it may be a file that was read"
    );
    assert_eq!(verdict(0, false).verdict, Verdict::TooLarge, "the first step: layers pile up, as in each that follows");
}

#[test]
fn what_grew_longer_than_was_recorded_is_growth_all_the_same() {
    let job = |file: &str, steps: u64| {
        let mut maker = Maker::new();
        let (keeps, fails) = (maker.stack(file, 3, "main"), maker.stack("train.py", 4, "main"));
        maker.segment(SegmentAction::Alloc, 0, 1000 * MIB);
        maker.alloc(0, 900 * MIB, StackId::NONE);
        for step in 0..12u64 {
            if step < steps {
                maker.event(RawEvent::Mark(stalloc_trace::Mark::StepBegin));
            }
            maker.alloc((900 + step) * MIB, MIB, keeps);
        }
        maker.event(RawEvent::OutOfMemory { size: 300 * MIB, device_free: 0, stack: fails });
        maker.trace()
    };
    let mut trace = job("train.py", 12);
    let holders = |name: &str, tensors: usize| {
        let addresses: Vec<u64> = (900..912).map(|at| at * MIB).collect();
        format!(
            r#"{{"holders": [{{"kind": "container", "name": "{name}", "bytes": {}, "tensors": {tensors}, "addresses": {addresses:?}}}]}}"#,
            900 * MIB
        )
    };
    trace.facts = Some(holders("deque `memory`", 900));
    let found = device(trace.clone());
    assert_eq!((found.verdict, found.cause), (Verdict::Growth, Some("kept")), "{}", found.headline);
    assert!(!found.headline.contains("piled up"), "twelve of 900 MiB were seen to pile up: {}", found.headline);
    trace.facts = Some(holders("list `two`", 2));
    assert_ne!(device(trace).verdict, Verdict::Growth, "two tensors are not filled");
    let mut loaded = job("torch/serialization.py", 1);
    loaded.facts = Some(holders("dict `checkpoint`", 12));
    let found = device(loaded);
    assert_eq!((found.verdict, found.cause), (Verdict::TooLarge, Some("kept")), "{}", found.headline);
}

#[test]
fn a_softmax_inside_of_a_module_is_not_taken_for_a_loss_over_classes() {
    let cause = |caller: &str, function: &str| {
        let mut maker = Maker::new();
        let frames =
            [("torch/nn/functional.py", "softmax"), ("net.py", function), (caller, "_call_impl"), ("train.py", "main")];
        let frames = frames.map(|(file, function)| Frame {
            file: maker.builder.string(file),
            function: maker.builder.string(function),
            line: 1,
        });
        let stack = maker.builder.stack(&frames);
        maker.segment(SegmentAction::Alloc, 0, 400 * MIB);
        (0..10).for_each(|i| maker.alloc(i * 40 * MIB, 40 * MIB, stack));
        maker.event(RawEvent::OutOfMemory { size: 40 * MIB, device_free: 0, stack });
        device(maker.trace()).cause
    };
    assert_eq!(cause("torch/nn/modules/module.py", "attend"), Some("activations"));
    assert_eq!(cause("train.py", "forward"), Some("activations"), "PyTorch's own frames are left out");
    assert_eq!(cause("train.py", "attend"), Some("logits"));
}
