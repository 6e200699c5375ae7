use super::*;

/// The functions of a source file that C calls, and how many of them are contained.
fn functions(source: &str) -> Vec<&str> {
    let starts = source.split("extern \"C").skip(1).filter_map(|rest| {
        let (abi, after) = rest.split_once("\" fn ")?;
        let named = after.starts_with(|first: char| first.is_ascii_lowercase() || first == '_');
        (abi.len() <= "-unwind".len() && named).then_some(after)
    });
    starts.collect()
}

#[test]
fn every_function_that_c_calls_is_contained() {
    let sources = [
        include_str!("../pluggable/mod.rs"),
        include_str!("../../../python/src/host.rs"),
        include_str!("../../../python/src/departure.rs"),
        include_str!("../../../python/src/tracker.rs"),
        include_str!("../../../python/src/record.rs"),
    ];
    let mut seen = 0;
    for function in sources.into_iter().flat_map(functions) {
        let (name, rest) = function.split_once('(').expect("parameters");
        let body = rest.split("\n}").next().unwrap_or_default();
        // The second name of a function, and one that does nothing.
        let calls_another = name.starts_with("my_") || body.trim_end().ends_with("false");
        let is_contained = ["contained", "done"].iter().any(|by| body.contains(&format!("{by}(\"{name}\"")));
        assert!(calls_another || is_contained, "{name} is not contained");
        seen += 1;
    }
    assert!(seen > 5, "{seen}");
}

#[test]
fn after_a_panic_the_other_answer_is_given() {
    assert_eq!(contained("test", || 1, || 2), 1);
    assert_eq!(contained("test", || panic!("a fault"), || 2), 2);
}
