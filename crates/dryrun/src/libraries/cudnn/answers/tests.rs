use super::{CudnnAnswer, read, record, records};
use stalloc_common::PrivateFolder;

#[test]
fn a_file_with_damage_gives_what_is_before_it_and_begins_anew() {
    let scratch = tempfile::tempdir().unwrap();
    let (folder, name) = (PrivateFolder::open(&scratch.path().join("folder")).unwrap(), "answers".as_ref());
    let answer = CudnnAnswer { status: 0, count: 1, bytes: vec![4] };
    let known = || read(&folder, name).into_keys().collect::<Vec<_>>();
    assert_eq!(known(), [0; 0]);
    folder.append(name, &record(7, &answer)).unwrap();
    assert_eq!((known(), known()), (vec![7], vec![7]));
    folder.append(name, &record(8, &answer)[1..]).unwrap();
    assert_eq!(known(), [7]);
    folder.append(name, &record(9, &answer)).unwrap();
    assert_eq!(known(), [9]);
}

#[test]
fn answers_are_read_back_up_to_the_first_that_is_damaged() {
    let answer = |status| CudnnAnswer { status, count: 3, bytes: vec![1, 2, 3] };
    let mut file = [record(7, &answer(0)), record(8, &answer(3000)), record(9, &answer(0))].concat();
    let read: Vec<_> = records(&file).collect();
    assert_eq!(read, [(7, answer(0)), (8, answer(3000)), (9, answer(0))]);
    for end in 0..file.len() {
        assert!(records(&file[..end]).count() <= 2);
    }
    let middle = file.len() / 2;
    file[middle] ^= 1;
    assert_eq!(records(&file).collect::<Vec<_>>(), [(7, answer(0))]);
    assert_eq!(records(&[0xff; 64]).count(), 0, "a length without limit");
}
