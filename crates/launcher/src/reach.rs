//! Whether the Python package gets into a command's interpreter.

use std::ffi::OsString;
use std::path::Path;

/// Why the package does not get into the interpreter that the command names, if its options say so: in a sentence that says what to do.
/// `package` is the package's folder: where it is installed, its `.pth` file is read even with `-I` and `-E`.
pub fn out_of_reach(command: &[OsString], package: &Path) -> Option<String> {
    let mut words = command.iter().map(|word| word.to_string_lossy());
    let program = words.next()?;
    let name = Path::new(program.as_ref()).file_name()?.to_string_lossy().into_owned();
    if !name.starts_with("python") && !name.starts_with("pypy") {
        return None;
    }
    let (mut isolated, mut takes_value) = (None, false);
    for word in words {
        let options = match word.strip_prefix('-') {
            _ if takes_value => {
                takes_value = false;
                continue;
            }
            Some(options) if !options.is_empty() && !options.starts_with('-') => options.to_owned(),
            Some("-check-hash-based-pycs") => {
                takes_value = true;
                continue;
            }
            _ => break,
        };
        for (at, option) in options.char_indices() {
            match option {
                'S' => {
                    return Some(format!(
                        "{name} -S starts without the site module, which is how stalloc gets into it: leave out -S"
                    ));
                }
                'I' | 'E' => isolated = Some(option),
                'W' | 'X' => {
                    takes_value = at + 1 == options.len();
                    break;
                }
                'c' | 'm' => break,
                _ => {}
            }
        }
        if options.contains(['c', 'm']) && !takes_value {
            break;
        }
    }
    let is_installed =
        package.parent().is_some_and(|site| site.ends_with("site-packages") || site.ends_with("dist-packages"));
    let option = isolated.filter(|_| !is_installed)?;
    Some(format!(
        "{name} -{option} ignores PYTHONPATH, which is how stalloc gets into it: leave out -{option}, or install stalloc for that Python"
    ))
}

#[cfg(test)]
mod tests;
