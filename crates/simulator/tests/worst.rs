//! Programs that the search for worst cases found (`examples/search.rs`) stay as good as they were made.

mod found;

use found::Program;
use stalloc_simulator::{Kind, Options, replay, smallest_capacity};

/// What a file says it may need at most: the smallest device over the best rival's.
fn most(text: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix("# most "));
    line.and_then(|most| most.parse().ok()).expect("a line `# most RATIO`")
}

fn programs() -> Vec<(String, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/found");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ext| ext == "txt"));
    paths.sort();
    let name = |path: &std::path::Path| path.file_stem().expect("a name").to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), std::fs::read_to_string(path).expect("a file"))).collect()
}

#[test]
fn a_program_is_read_as_it_was_written() {
    for (name, text) in programs() {
        let program: Program = text.parse().unwrap();
        assert_eq!(program.to_string().parse::<Program>().unwrap(), program, "{name}");
    }
}

#[test]
fn what_was_found_needs_no_more_of_the_best_rivals_memory_than_it_did() {
    for (name, text) in programs() {
        let program: Program = text.parse().unwrap();
        let trace = program.trace();
        assert!((program.requests() as i64 - trace.requests.len() as i64).abs() <= 1 + trace.requests.len() as i64 / 4);
        let need = |kind| smallest_capacity(&trace, kind, &Options::default(), &mut |_, _| {}).unwrap().unwrap() as f64;
        let best = need(Kind::Pytorch).min(need(Kind::PytorchExpandable));
        for kind in [Kind::StallocOpen, Kind::StallocAuto] {
            let ratio = need(kind) / best;
            assert!(ratio <= most(&text), "{name}: {} needs {ratio:.4} of the best rival", kind.name());
        }
    }
}

#[test]
fn what_was_found_makes_auto_remap_no_more_than_a_few_times_as_often_as_open() {
    for (name, text) in programs() {
        let trace = text.parse::<Program>().unwrap().trace();
        let peak = trace.peak_allocated();
        let options = Options { capacity: Some(peak + peak / 20), ..Options::default() };
        let remaps = |kind| replay(&trace, kind, &options, &mut |_, _| {}).unwrap().remaps.unwrap();
        let (open, auto) = (remaps(Kind::StallocOpen), remaps(Kind::StallocAuto));
        assert!(auto <= 2 * open + 20, "{name}: {auto} remaps, {open} with no plan at all");
    }
}
