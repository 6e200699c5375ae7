use super::*;
use crate::format::Writer;
use crate::model::Mark;
use crate::raw::RawEvent;

#[test]
fn both_ends_of_a_trace_are_told_whatever_is_cut_off() -> io::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a.trace");
    let mut writer = Writer::new(std::fs::File::create(&path)?, 3)?;
    writer.metadata("launch", "one")?;
    writer.push(&RawEvent::Mark(Mark::StepBegin), None)?;
    writer.metadata("late", "is not looked for")?;
    writer.finish()?;
    let seen = |bytes: &[u8]| -> io::Result<Option<About>> {
        std::fs::write(&path, bytes)?;
        about(&mut File::open(&path)?)
    };
    let whole = std::fs::read(&path)?;
    let metadata = BTreeMap::from([("launch".to_owned(), "one".to_owned())]);
    assert_eq!(seen(&whole)?, Some(About { metadata: metadata.clone(), is_whole: true }));
    for length in MAGIC.len() + 1..whole.len() {
        let about = seen(&whole[..length])?;
        assert!(about.is_some_and(|about| !about.is_whole), "{length} bytes");
    }
    assert_eq!(seen(&whole[..5])?, None);
    assert_eq!(seen(b"a text that is no trace")?, None);
    // Another file may have the byte of a version where ours has it; and ours may be of a version to come.
    assert_eq!(seen(&[b"\x93another", &whole[MAGIC.len()..]].concat())?, None);
    assert_eq!(seen(&[&MAGIC[..], &[VERSIONS.end() + 1], &whole[MAGIC.len() + 1..]].concat())?, None);
    assert_eq!(seen(&[&MAGIC[..], &[0], &whole[MAGIC.len() + 1..]].concat())?, None);
    Ok(())
}
