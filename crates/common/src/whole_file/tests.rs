use std::fs;

use super::*;

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_failure_leaves_what_was_there_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan");
    whole_file(&path, |out| out.write_all(b"first")).unwrap();
    let failed = whole_file(&path, |out| {
        out.write_all(b"half")?;
        Err(io::Error::other("the disk is full"))
    });
    assert_eq!(failed.unwrap_err().to_string(), "the disk is full");
    assert_eq!((fs::read(&path).unwrap().as_slice(), names(folder.path())), (&b"first"[..], vec!["plan".to_owned()]));
}

#[test]
fn a_link_to_what_is_there_already_leaves_no_second_name() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    fs::write(&first, "plan").unwrap();
    for _ in 0..2 {
        replace(&second, |new| fs::hard_link(&first, new)).unwrap();
        assert_eq!(names(folder.path()), ["first", "second"]);
    }
}

#[cfg(unix)]
#[test]
fn a_link_replaces_what_was_there_and_one_that_cannot_be_made_does_not() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    for target in ["first", "second"] {
        replace(&link, |new| symlink(target, new)).unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), Path::new(target));
    }
    assert!(replace(&link, |new| fs::hard_link(folder.path().join("none"), new)).is_err());
    assert_eq!(
        (fs::read_link(&link).unwrap().as_path(), names(folder.path())),
        (Path::new("second"), vec!["link".to_owned()])
    );
}

#[cfg(unix)]
#[test]
fn a_link_is_followed_only_where_the_user_named_it_and_it_is_his() {
    use std::os::unix::fs::{lchown, symlink};
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (folder.path().join("plan"), folder.path().join("link"));
    fs::write(&path, b"old").unwrap();
    symlink(&path, &link).unwrap();
    users_file(&link, |out| out.write_all(b"new")).unwrap();
    assert!(link.is_symlink());
    assert_eq!(fs::read(&path).unwrap(), b"new");
    whole_file(&link, |out| out.write_all(b"ours")).unwrap();
    assert_eq!((link.is_symlink(), fs::read(&path).unwrap()), (false, b"new".to_vec()));
    users_file(Path::new("/dev/null"), |out| out.write_all(b"gone")).unwrap();
    assert_eq!(names(folder.path()), ["link", "plan"]);
    if rustix::process::geteuid().is_root() {
        fs::remove_file(&link).unwrap();
        symlink(&path, &link).unwrap();
        lchown(&link, Some(54_321), Some(54_321)).unwrap();
        users_file(&link, |out| out.write_all(b"ours")).unwrap();
        assert_eq!((link.is_symlink(), fs::read(&path).unwrap()), (false, b"new".to_vec()), "another user's link");
    }
}
