//! Makes a stub for every function that `symbols/*.txt` names and `src` does not define, so that a program links whatever it asks for.
//!
//! A function counts as defined where `src` has it in an `exports!` block: a line that begins with `fn NAME(`. A mistake cannot pass
//! in silence: a name defined twice does not link.

use std::{collections::HashSet, env, error::Error, fmt::Write as _, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=symbols");
    println!("cargo:rerun-if-changed=src");
    // Programs that open `libcuda.so.1` by name find the library that is already loaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");

    let mut defined = HashSet::new();
    collect_defined(Path::new("src"), &mut defined)?;
    let mut code = String::new();
    let mut names = Vec::new();
    let mut files: Vec<_> = fs::read_dir("symbols")?.collect::<Result<_, _>>()?;
    files.sort_by_key(std::fs::DirEntry::path);
    for file in files {
        let path = file.path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let library = path.file_stem().and_then(|stem| stem.to_str()).ok_or("a symbol file without a name")?;
        for line in fs::read_to_string(&path)?.lines() {
            let mut words = line.split_whitespace();
            let Some(name) = words.next().filter(|name| !defined.contains(*name)) else {
                continue;
            };
            stub(&mut code, library, name, words)?;
            names.push(name.to_owned());
        }
    }
    names.sort();
    writeln!(code, "/// Names of all stubs, in order.\npub static NAMES: &[&str] = &{names:?};")?;
    fs::write(Path::new(&env::var("OUT_DIR")?).join("stubs.rs"), code)?;
    Ok(())
}

/// Adds the names of the functions in `exports!` blocks below `directory`.
fn collect_defined(directory: &Path, defined: &mut HashSet<String>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect_defined(&path, defined)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path)?;
            let names = text
                .lines()
                .filter_map(|line| line.trim_start().strip_prefix("fn "))
                .filter_map(|rest| rest.split('(').next());
            defined.extend(names.map(str::to_owned));
        }
    }
    Ok(())
}

/// Writes the stub of `name`: it takes as many registers as its answers reach, and hands them to `stubs::answer`.
fn stub<'a>(
    code: &mut String,
    library: &str,
    name: &str,
    answers: impl Iterator<Item = &'a str>,
) -> Result<(), Box<dyn Error>> {
    let mut result = "Succeed";
    let mut writes = String::new();
    let mut registers = 0;
    for answer in answers {
        match answer.split_once('@') {
            None if answer == "fail" => result = "Fail",
            None if answer == "text" => result = "Text",
            Some((what, register)) => {
                let register: usize = register.parse()?;
                registers = registers.max(register + 1);
                let what = match what {
                    "h" => "Handle",
                    "4" => "Zero4",
                    "8" => "Zero8",
                    _ => return Err(format!("{name}: no such answer: {answer}").into()),
                };
                write!(writes, "(Write::{what}, a{register}),")?;
            }
            None => return Err(format!("{name}: no such answer: {answer}").into()),
        }
    }
    let parameters: String = (0..registers)
        .map(|register| {
            let used = writes.contains(&format!(" a{register})"));
            format!("{}a{register}: usize,", if used { "" } else { "_" })
        })
        .collect();
    writeln!(
        code,
        "#[unsafe(no_mangle)]\nextern \"C\" fn {name}({parameters}) -> usize {{\n    \
         static LOGGED: AtomicBool = AtomicBool::new(false);\n    \
         answer(StubLibrary::{library}, {name:?}, &LOGGED, StubOutcome::{result}, &[{writes}])\n}}"
    )?;
    Ok(())
}
