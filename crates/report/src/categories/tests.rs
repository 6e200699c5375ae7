use stalloc_trace::{RawEvent, TraceBuilder};

use super::*;

/// What holds the peak of what happens: an address and the size that is put there, or `free`; or a phase.
fn bytes_at_peak(happens: &[(u64, &str)], places: &str) -> Vec<(&'static str, u64)> {
    let mut builder = TraceBuilder::new(0);
    let mut steps = 0;
    for &(address, what) in happens {
        let event = match what {
            "free" => RawEvent::FreeRequested { address, size: 0, stream: 0 },
            "backward" | "optimizer" | "forward" => {
                steps += u32::from(what == "optimizer");
                RawEvent::Mark(Mark::Phase { kind: builder.string(what), micro_batch: steps.saturating_sub(1) })
            }
            size => RawEvent::Alloc { address, size: size.parse().unwrap(), stream: 0, stack: StackId::NONE },
        };
        builder.push(event, None);
    }
    let places: TensorPlaces = serde_json::from_str(places).unwrap();
    at_peak(&builder.finish(), &places).into_iter().map(|(category, bytes)| (category.name(), bytes)).collect()
}

#[test]
fn what_a_program_noted_names_the_holders_of_the_last_peak() {
    let step = |gradient: u64, scratch: &'static str| {
        [
            (20, "1024"),
            (110 - gradient, "1024"), // kept over the optimizer's step, where the other step has its gradient
            (0, "backward"),
            (gradient, "2048"),
            (20, "free"),
            (0, "forward"),
            (0, "optimizer"),
            (90, scratch),
            (90, "free"),
            (0, "forward"),
            (110 - gradient, "free"),
            (gradient, "free"),
        ]
    };
    let first = [(1, "512"), (2, "4096"), (50, "1536"), (50, "free")];
    let [one, two] = [step(50, "8192"), step(60, "512")];
    let places = r#"{"kept": {"parameters": [2, 20], "optimizer states": []}, "gradients": [[50], [60]]}"#;
    let expected = [
        ("parameters", 4096),
        ("kept over steps, unknown", 512),
        ("gradients", 2048),
        ("activations", 1024),
        ("temporaries", 8192),
    ];
    assert_eq!(bytes_at_peak(&[&first[..], &one, &two].concat(), places), expected, "the optimizer's step");
    let [one, two] = [step(50, "512"), step(60, "512")];
    let expected =
        [("parameters", 4096), ("kept over steps, unknown", 512), ("gradients", 2048), ("activations", 2048)];
    assert_eq!(bytes_at_peak(&[&first[..], &one, &two].concat(), places), expected, "the backward pass");
}

#[test]
fn a_program_without_phases_has_what_it_noted_at_its_end() {
    let happens = [(1, "512"), (2, "1024"), (3, "2048"), (3, "free"), (4, "512")];
    let places = r#"{"kept": {"parameters": [1, 3]}, "gradients": []}"#;
    assert_eq!(bytes_at_peak(&happens, places), [("parameters", 512), ("unknown", 3072)]);
    assert!(bytes_at_peak(&[], places).is_empty());
}
