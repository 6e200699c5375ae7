//! What a launcher can rely on.
use crate::{GPUS, SetupError, find, launch};
use std::{collections::HashSet, fs, os::unix::fs::PermissionsExt};

#[test]
fn every_preset_is_found_by_its_name_in_any_case() {
    for gpu in GPUS {
        assert_eq!(find(&gpu.name.to_uppercase()).unwrap(), gpu);
    }
    let names: HashSet<_> = GPUS.iter().map(|gpu| gpu.name).collect();
    assert_eq!(names.len(), GPUS.len());
}

#[test]
fn an_unknown_gpu_is_answered_with_the_list() {
    let message = find("h1000").unwrap_err().to_string();
    assert!(message.contains("h1000") && message.contains("h100-80gb, h200-141gb"));
}

#[test]
fn presets_hold_together() {
    for gpu in GPUS {
        assert!(gpu.context < gpu.total / 8, "{}", gpu.name);
        assert!(gpu.shared_per_block < gpu.shared_per_multiprocessor, "{}", gpu.name);
        assert_eq!(gpu.threads_per_multiprocessor % 32, 0, "{}", gpu.name);
    }
}

#[test]
fn a_named_library_is_taken_and_a_missing_one_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("any.so");
    fs::write(&file, b"").unwrap();
    let found = launch::library(Some(file.clone().into()), None).unwrap();
    assert_eq!(found, fs::canonicalize(&file).unwrap());
    let missing = directory.path().join("absent.so");
    let error = launch::library(Some(missing.into()), None).unwrap_err();
    assert!(matches!(&error, SetupError::LibraryMissing { .. }));
    assert!(error.to_string().contains("absent.so"));
}

#[test]
fn links_are_made_once_and_lead_to_the_library() {
    let directory = tempfile::tempdir().unwrap();
    let library = directory.path().join("libstalloc_dryrun.so");
    fs::write(&library, b"").unwrap();
    let cache = directory.path().join("cache");
    let links = launch::links(&library, &cache).unwrap();
    assert_eq!(links, launch::links(&library, &cache).unwrap());
    assert_eq!(fs::read_link(links.join("libnvidia-ml.so.1")).unwrap(), library);
    let other = launch::links(&directory.path().join("other.so"), &cache).unwrap();
    assert_ne!(links, other);
}

#[test]
fn a_link_that_leads_elsewhere_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let library = directory.path().join("libstalloc_dryrun.so");
    fs::write(&library, b"").unwrap();
    let links = launch::links(&library, directory.path()).unwrap();
    let link = links.join("libcuda.so.1");
    fs::remove_file(&link).unwrap();
    fs::write(&link, b"another library").unwrap();
    launch::links(&library, directory.path()).unwrap();
    assert_eq!(fs::read_link(&link).unwrap(), library);
    assert_eq!(fs::read_dir(&links).unwrap().count(), 4, "nothing else is left");
}

#[test]
fn in_a_folder_of_everybody_only_a_private_directory_of_ours_is_taken() {
    let shared = tempfile::tempdir().unwrap();
    let mode = |path: &std::path::Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    let usual = launch::private_directory(shared.path()).unwrap();
    assert_eq!(mode(&usual), 0o700);
    assert_eq!(launch::private_directory(shared.path()).unwrap(), usual, "once is enough");
    fs::set_permissions(&usual, fs::Permissions::from_mode(0o777)).unwrap();
    let other = launch::private_directory(shared.path()).unwrap();
    assert_ne!(other, usual, "others may have written to it");
    assert_eq!(mode(&other), 0o700);
    fs::remove_dir(&usual).unwrap();
    std::os::unix::fs::symlink("/nowhere", &usual).unwrap();
    assert_eq!(launch::private_directory(shared.path()).unwrap(), other, "somebody's link");
}

#[test]
fn a_directory_that_the_loader_would_cut_is_refused() {
    let library = std::path::Path::new("/lib/libstalloc_dryrun.so");
    for cache in ["/home/some body", "/home/a:b"] {
        let error = launch::links(library, cache.as_ref()).unwrap_err();
        assert!(matches!(error, SetupError::Separator(_)), "{error}");
    }
}
