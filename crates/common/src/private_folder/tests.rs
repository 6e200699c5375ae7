use std::os::unix::fs::{PermissionsExt, chown, symlink};

use super::*;

/// Whom an attack comes from.
const STRANGER: u32 = 54_321;

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn names(folder: &PrivateFolder) -> Vec<OsString> {
    let mut names: Vec<_> = folder.names().unwrap().into_iter().map(|(name, _)| name).collect();
    names.sort();
    names
}

fn write(folder: &PrivateFolder, name: &str, bytes: &[u8]) -> io::Result<()> {
    folder.write(name.as_ref(), |out| out.write_all(bytes))
}

#[test]
fn a_folder_is_made_for_its_owner_alone_and_keeps_files_whole() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = PrivateFolder::to_run_from(&scratch.path().join("a/b/c")).unwrap();
    for made in ["a", "a/b", "a/b/c"] {
        assert_eq!(scratch.path().join(made).metadata().unwrap().mode() & 0o777, 0o700, "{made}");
    }
    write(&folder, "x", b"first").unwrap();
    write(&folder, "x", b"second").unwrap();
    let failed = folder.write("x".as_ref(), |out| out.write_all(b"half").and_then(|()| Err(io::Error::other("full"))));
    assert_eq!(failed.unwrap_err().to_string(), "full");
    assert_eq!((folder.read("x".as_ref(), 6).unwrap(), names(&folder)), (b"second".to_vec(), vec!["x".into()]));
    assert!(folder.read("x".as_ref(), 5).unwrap_err().to_string().ends_with("x: it is too long"));
    let below = folder.below("d".as_ref()).unwrap();
    write(&below, "y", b"").unwrap();
    for name in ["..", ".", "", "a/b", "/x", "d/../x"] {
        assert!(write(&folder, name, b"").is_err() && folder.remove(name.as_ref()).is_err(), "{name}");
    }
    folder.remove("x".as_ref()).unwrap();
    folder.remove("x".as_ref()).unwrap();
    assert_eq!((names(&below), names(&folder)), (vec!["y".into()], vec!["d".into()]));
}

#[test]
fn a_folder_that_others_can_write_to_or_that_is_a_link_is_not_taken() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("folder");
    fs::create_dir(&path).unwrap();
    for open in [0o777, 0o1777, 0o770, 0o702] {
        mode(&path, open);
        let told = PrivateFolder::open(&path).unwrap_err().to_string();
        assert!(
            told.contains("can be written to by other users") && told.contains("XDG_CACHE_HOME"),
            "{open:o}: {told}"
        );
    }
    mode(&path, 0o755);
    PrivateFolder::open(&path).unwrap();
    let link = scratch.path().join("link");
    symlink(&path, &link).unwrap();
    assert!(PrivateFolder::open(&link).unwrap_err().to_string().contains("is a link"));
    fs::write(scratch.path().join("file"), b"").unwrap();
    assert!(PrivateFolder::open(&scratch.path().join("file")).is_err());
}

#[test]
fn what_is_run_lies_where_only_its_owner_can_rename_folders() {
    let scratch = tempfile::tempdir().unwrap();
    let (open, folder) = (scratch.path().join("open"), scratch.path().join("open/folder"));
    fs::create_dir(&open).unwrap();
    for (above, is_safe) in [(0o700, true), (0o755, true), (0o777, false), (0o1777, true), (0o757, false)] {
        mode(&open, above);
        assert_eq!(PrivateFolder::to_run_from(&folder).is_ok(), is_safe, "{above:o}");
        PrivateFolder::open(&folder).unwrap();
    }
    mode(&open, 0o777);
    let (link, way) = (scratch.path().join("link"), scratch.path().join("way"));
    symlink("open", &link).unwrap();
    symlink(scratch.path(), &way).unwrap();
    for path in [link.join("folder"), way.join("link/folder"), way.join("open/../open/folder")] {
        assert!(PrivateFolder::to_run_from(&path).is_err(), "through a link: {}", path.display());
    }
    mode(&open, 0o755);
    PrivateFolder::to_run_from(&way.join("link/folder")).unwrap();
}

#[test]
fn a_link_or_pipe_in_the_place_of_a_file_is_neither_followed_nor_waited_for() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = PrivateFolder::open(&scratch.path().join("folder")).unwrap();
    let victim = scratch.path().join("victim");
    fs::write(&victim, b"precious").unwrap();
    symlink(&victim, folder.path().join("x")).unwrap();
    assert!(folder.read("x".as_ref(), 100).is_err());
    assert!(folder.append("x".as_ref(), b"more").is_err());
    write(&folder, "x", b"ours").unwrap();
    assert_eq!(
        (fs::read(&victim).unwrap(), folder.read("x".as_ref(), 100).unwrap()),
        (b"precious".to_vec(), b"ours".to_vec())
    );
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
    assert!(folder.append("pipe".as_ref(), b"more").is_err());
    assert!(folder.read("pipe".as_ref(), 100).unwrap_err().to_string().ends_with("pipe: it is no file"));
    folder.link("pipe".as_ref(), Path::new("/lib/first")).unwrap();
    folder.link("pipe".as_ref(), Path::new("/lib/second")).unwrap();
    assert_eq!(fs::read_link(pipe).unwrap(), Path::new("/lib/second"));
}

/// Has another user of the machine make `path`, as far as we are root; false, with a line, otherwise.
fn stranger_owns(path: &Path) -> bool {
    let is_done = chown(path, Some(STRANGER), Some(STRANGER)).is_ok();
    if !is_done {
        eprintln!("skipped: attacks by another user need root");
    }
    is_done
}

#[test]
fn what_another_user_made_is_not_taken() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("folder");
    let folder = PrivateFolder::open(&path).unwrap();
    write(&folder, "x", b"theirs").unwrap();
    if !stranger_owns(&path.join("x")) {
        return;
    }
    assert!(folder.read("x".as_ref(), 100).unwrap_err().to_string().ends_with("x: it is another user's"));
    assert!(stranger_owns(&path));
    assert!(PrivateFolder::open(&path).unwrap_err().to_string().contains("belongs to another user"));
    // Below a folder of theirs ours could be replaced.
    let below = path.join("ours");
    PrivateFolder::open(&below).unwrap();
    assert!(PrivateFolder::to_run_from(&below).unwrap_err().to_string().contains("belongs to another user"));
    // A link of theirs in a folder like /tmp.
    let shared = scratch.path().join("shared");
    fs::create_dir_all(scratch.path().join("ours/folder")).unwrap();
    fs::create_dir(&shared).unwrap();
    mode(&shared, 0o1777);
    symlink(scratch.path().join("ours"), shared.join("link")).unwrap();
    PrivateFolder::to_run_from(&shared.join("link/folder")).unwrap();
    std::os::unix::fs::lchown(shared.join("link"), Some(STRANGER), None).unwrap();
    assert!(PrivateFolder::to_run_from(&shared.join("link/folder")).is_err());
}

#[test]
fn the_first_folder_that_can_be_had_is_taken_and_one_of_a_new_name_where_others_took_all() {
    let scratch = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| scratch.path().join(name));
    let taken = |suits: fn(&Path) -> bool| {
        PrivateFolder::first_of(&[Some(first.clone()), None, Some(second.clone())], "x", suits).unwrap().path
    };
    assert_eq!(taken(|_| true), first.join("x"));
    assert_eq!(taken(|path| path.ends_with("second/x")), second.join("x"));
    mode(&first.join("x"), 0o777);
    assert_eq!(taken(|_| true), second.join("x"));
    mode(&second.join("x"), 0o777);
    let new = taken(|_| true);
    assert!(new.starts_with(env::temp_dir()) && !new.starts_with(scratch.path()), "{}", new.display());
    fs::remove_dir_all(new.parent().unwrap()).unwrap();
}
