//! The shims' `core.h` is made from the core's types, and says how large each of them is here.

use std::path::Path;
use std::{env, fs};

use super::*;

/// The header as the sources have it. Sizes are Rust's: a compiler that lays a structure out in another way refuses the header.
fn header(root: &Path) -> String {
    let mut config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("the settings can be read");
    let sizes = [
        ("StallocArena", size_of::<CoreArena>()),
        ("StallocBlock", size_of::<CoreBlock>()),
        ("StallocCore", size_of::<Core>()),
        ("StallocCounters", size_of::<Counters>()),
        ("StallocExport", size_of::<CoreExport>()),
        ("StallocPart", size_of::<CorePart>()),
        ("StallocPinned", size_of::<PinnedCounters>()),
        ("StallocPoolPart", size_of::<CorePoolPart>()),
        ("StallocRange", size_of::<CoreRange>()),
    ];
    let version = "\n// A shim refuses a core of another version than it was compiled for.\nconstexpr uint32_t STALLOC_CORE_VERSION";
    config.after_includes = Some(format!("{version} = {VERSION};"));
    config.trailer = Some(sizes.map(|(name, size)| format!("static_assert(sizeof({name}) == {size});")).join("\n"));
    // cbindgen sees through no macro: the table's source is what the macro made.
    let table = tempfile::NamedTempFile::new().expect("a file can be made");
    fs::write(&table, SOURCE).expect("it can be written");
    let builder = cbindgen::Builder::new().with_config(config).with_src(table.path());
    let sources = ["table/types.rs", "counters.rs", "pinned.rs"];
    let builder = sources.iter().fold(builder, |builder, name| builder.with_src(root.join("src").join(name)));
    let mut text = Vec::new();
    builder.generate().expect("the sources can be read").write(&mut text);
    String::from_utf8(text).expect("a header is text")
}

#[test]
fn the_header_is_what_the_core_makes_of_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("../../python/stalloc/shim/core.h");
    let made = header(root);
    if env::var_os("UPDATE_HEADER").is_some() {
        fs::write(&path, &made).expect("the header can be written");
    }
    let there = fs::read_to_string(&path).expect("the header can be read");
    assert_eq!(there, made, "write it again: UPDATE_HEADER=1 cargo test -p stalloc-runtime header");
}
