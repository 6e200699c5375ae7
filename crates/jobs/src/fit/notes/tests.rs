use super::*;

#[test]
fn what_processes_noted_is_joined_and_files_that_changed_are_seen() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("train.py");
    fs::write(&source, "x = 1").unwrap();
    let note = |name: &str, used: &str| {
        let text = format!(
            "{{\"sources\": [{source:?}, \"/no/such/file\"], \"groups\": {{\"used\": {used}, \"unused\": [], \"all_to_all\": 0}}}}"
        );
        fs::write(folder.path().join(name), text).unwrap();
    };
    assert_eq!(read_notes(folder.path()), Notes::default());
    note("1.json", "[]");
    note("2.json", "[8, 2]");
    fs::write(folder.path().join("3.json"), "{cut off").unwrap();
    let notes = read_notes(folder.path());
    assert_eq!(notes.groups.unwrap().used, [8, 2]);
    let sources = notes.sources.unwrap();
    assert!(sources.len() == 1 && sources[0].is_same());
    fs::write(&source, "x = 2222").unwrap();
    assert!(!sources[0].is_same());
    fs::remove_file(&source).unwrap();
    assert!(!sources[0].is_same());
}
