use super::*;

fn told(command: &str, package: &str) -> Option<String> {
    let words: Vec<OsString> = command.split(' ').map(OsString::from).collect();
    out_of_reach(&words, package.as_ref())
}

#[test]
fn options_that_keep_the_package_out_are_named() {
    for command in
        ["python -I a.py", "/usr/bin/python3.12 -u -W error -E a.py", "python3 -uIB -c pass", "python -X dev -S a.py"]
    {
        assert!(
            told(command, "/src/target/python/stalloc").is_some_and(|told| told.contains("leave out -")),
            "{command}"
        );
    }
    assert!(
        told("python -IS a.py", "/venv/lib/python3.12/site-packages/stalloc")
            .is_some_and(|told| told.contains("leave out -S"))
    );
}

#[test]
fn other_commands_are_let_alone() {
    for command in [
        "python a.py -I",
        "python -m run -S",
        "python -c I",
        "torchrun -I",
        "python -W Ignore a.py",
        "python",
        "python -",
    ] {
        assert_eq!(told(command, "/src/stalloc"), None, "{command}");
    }
    assert_eq!(told("python -I a.py", "/venv/lib/python3.12/site-packages/stalloc"), None);
}
