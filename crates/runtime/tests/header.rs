//! The C interface stands twice, in the shims' `core.h` and in Rust. Both say the same: each structure has the same members in the
//! same order, each function the same parameters.

use std::collections::BTreeMap;

const HEADER: &str = include_str!("../../../python/stalloc/shim/core.h");
const SOURCES: [&str; 3] =
    [include_str!("../src/table.rs"), include_str!("../src/counters.rs"), include_str!("../src/pinned.rs")];

/// A structure's members in order, each with its type, in Rust's words.
type Members = Vec<(String, String)>;

/// What C calls a type of Rust's; structures lose their prefix.
fn of_c(text: &str) -> String {
    let text = text.trim();
    if let Some(to) = text.strip_suffix('*') {
        return match to.strip_prefix("const ") {
            Some(to) => format!("*const {}", of_c(to).replace("()", "c_void")),
            None => format!("*mut {}", of_c(to).replace("()", "c_void")),
        };
    }
    match text {
        "void" => "()",
        "char" => "c_char",
        "int" => "i32",
        "uint32_t" => "u32",
        "uint64_t" => "u64",
        "size_t" => "usize",
        other => other.strip_prefix("Stalloc").unwrap_or(other),
    }
    .to_owned()
}

/// `int device` in Rust's words, without the name.
fn parameter_of_c(text: &str) -> String {
    let end = text.trim_end().trim_end_matches(|letter: char| letter.is_alphanumeric() || letter == '_').len();
    of_c(&text[..end])
}

fn members_of_c(body: &str) -> Members {
    let code: String = body.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let mut members = Vec::new();
    for statement in code.split(';').map(str::trim).filter(|statement| !statement.is_empty()) {
        if let Some((result, rest)) = statement.split_once("(*") {
            let (name, parameters) = rest.split_once(")(").expect("parameters");
            let parameters = parameters.trim_end_matches(')').split(',').filter(|text| !text.trim().is_empty());
            let parameters = parameters.map(parameter_of_c).collect::<Vec<_>>().join(", ");
            members.push((name.to_owned(), format!("fn({parameters}) -> {}", of_c(result))));
            continue;
        }
        let (of, names) = statement.split_once(' ').expect("a name");
        for name in names.split(',').map(str::trim) {
            match name.split_once('[') {
                Some((name, count)) => members.push((name.to_owned(), format!("[{}; {}", of_c(of), count))),
                None => members.push((name.to_owned(), of_c(of))),
            }
        }
    }
    members
}

fn structures_of_c() -> BTreeMap<String, Members> {
    let parts = HEADER.split("struct Stalloc").skip(1).map(|rest| rest.split_once(" {").expect("a body"));
    parts.map(|(name, rest)| (name.to_owned(), members_of_c(rest.split("\n};").next().expect("its end")))).collect()
}

/// A structure's name without what Rust has before or after it.
fn name_of_rust(name: &str) -> &str {
    match name {
        "Core" => name,
        "PinnedCounters" => "Pinned",
        _ => name.strip_prefix("Core").unwrap_or(name),
    }
}

fn member_of_rust(line: &str) -> Option<(String, String)> {
    let line = line.trim().trim_start_matches("pub ").trim_end_matches(',');
    let (name, of) = line.split_once(": ").filter(|_| !line.starts_with("//"))?;
    let mut of = of.replace("unsafe ", "").replace("extern \"C\" ", "");
    if of.starts_with("fn(") && !of.contains(" -> ") {
        of.push_str(" -> ()");
    }
    for own in ["CoreBlock", "CoreArena", "CoreRange", "CoreExport", "CorePart", "CorePoolPart", "PinnedCounters"] {
        of = of.replace(own, name_of_rust(own));
    }
    Some((name.to_owned(), of))
}

fn structures_of_rust() -> BTreeMap<String, Members> {
    let parts = SOURCES.iter().flat_map(|source| source.split("#[repr(C)]").skip(1));
    let parts = parts.filter_map(|rest| rest.split_once("struct ")?.1.split_once(" {"));
    parts
        .map(|(name, rest)| {
            let body = rest.split("\n}").next().expect("its end");
            (name_of_rust(name).to_owned(), body.lines().filter_map(member_of_rust).collect())
        })
        .collect()
}

#[test]
fn the_header_and_the_core_have_the_same_structures_and_functions() {
    let (c, rust) = (structures_of_c(), structures_of_rust());
    assert_eq!(c.keys().collect::<Vec<_>>(), rust.keys().collect::<Vec<_>>());
    for (name, members) in &c {
        assert_eq!(members, &rust[name], "{name}: the header first, then the core");
    }
    assert!(c["Core"].len() > 25 && c.len() > 10);
}

#[test]
fn the_header_and_the_core_are_of_one_version() {
    let number = |text: &str, before: &str| -> u32 {
        let rest = text.split_once(before).expect("a version").1;
        rest.split(';').next().and_then(|text| text.trim().parse().ok()).expect("a number")
    };
    assert_eq!(number(HEADER, "STALLOC_CORE_VERSION ="), number(SOURCES[0], "const VERSION: u32 ="));
}
