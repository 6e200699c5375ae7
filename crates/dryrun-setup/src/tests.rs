//! What a launcher can rely on.
use crate::{GPUS, MIB, SetupError, find, find_all, launch, nvidia_smi};
use stalloc_common::PrivateFolder;
use std::{collections::HashSet, fs, os::unix::fs::PermissionsExt};

#[test]
fn every_preset_is_found_by_its_name_in_any_case() {
    for gpu in GPUS {
        assert_eq!(find(&gpu.name.to_uppercase()).unwrap(), *gpu);
    }
    assert!(GPUS.is_sorted_by_key(|gpu| gpu.total), "whoever looks for the smallest takes the first");
    let names: HashSet<_> = GPUS.iter().map(|gpu| gpu.name).collect();
    assert_eq!(names.len(), GPUS.len());
}

#[test]
fn the_size_is_left_out_where_a_gpu_has_only_one() {
    assert_eq!(find("H100").unwrap().name, "h100-80gb");
    assert_eq!(find("h200").unwrap().name, "h200-141gb");
    assert_eq!(find("like=gh200,memory=90GiB").unwrap().capability, (9, 0));
    let message = find("a100").unwrap_err().to_string();
    assert!(message.contains("a100-40gb, a100-80gb") && !message.contains("h100"), "{message}");
    assert!(find("h").is_err() && find("h100-").is_err());
}

#[test]
fn an_unknown_gpu_is_answered_with_the_list() {
    let message = find("h1000").unwrap_err().to_string();
    assert!(message.contains("h1000") && message.contains("h100-80gb, gh200-96gb"));
}

#[test]
fn presets_hold_together() {
    for gpu in GPUS {
        assert!(gpu.context < gpu.total / 8, "{}", gpu.name);
        assert!(gpu.shared_per_block <= gpu.shared_per_multiprocessor, "{}", gpu.name);
        let (least, most) = gpu.context_range;
        assert!((least..=most).contains(&gpu.context), "{}", gpu.name);
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
fn links_lead_to_the_library_and_one_that_leads_elsewhere_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let library = directory.path().join("libstalloc_dryrun.so");
    fs::write(&library, b"").unwrap();
    let folder = PrivateFolder::to_run_from(&directory.path().join("links")).unwrap();
    launch::fill(&folder, &library).unwrap();
    let link = folder.path().join("libcuda.so.1");
    fs::remove_file(&link).unwrap();
    fs::write(&link, b"another library").unwrap();
    launch::fill(&folder, &library).unwrap();
    for name in ["libcuda.so.1", "libnvidia-ml.so.1"] {
        assert_eq!(fs::read_link(folder.path().join(name)).unwrap(), library);
    }
    assert_eq!(folder.names().unwrap().len(), 4, "nothing else is left");
}

#[test]
fn what_is_put_on_the_path_is_nvidia_smi_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (program, links) = (directory.path().join("stalloc"), directory.path().join("links"));
    fs::write(&program, b"").unwrap();
    fs::create_dir_all(links.join("bin")).unwrap();
    fs::write(links.join("bin/python"), b"an older version's, or an attacker's").unwrap();
    let folder = PrivateFolder::to_run_from(&links).unwrap();
    let bin = launch::nvidia_smi(&folder, &program).unwrap();
    let names: Vec<_> = fs::read_dir(&bin).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!((names, fs::read_link(bin.join("nvidia-smi")).unwrap()), (vec!["nvidia-smi".into()], program.clone()));
    fs::set_permissions(&bin, fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(launch::nvidia_smi(&folder, &program), None, "others may write to it");
}

#[test]
fn a_folder_that_the_loader_would_cut_is_not_used() {
    for path in ["/home/some body", "/home/a:b"] {
        assert!(!launch::has_no_separator(path.as_ref()));
    }
    assert!(launch::has_no_separator("/home/somebody/.cache".as_ref()));
}

#[test]
fn a_gpu_can_be_described_from_nothing_or_from_a_preset() {
    let mine = find("sm=132,memory=80GiB,capability=9.0,name=My card").unwrap();
    assert_eq!((mine.multiprocessors, mine.total, mine.capability, mine.product), (132, 80 << 30, (9, 0), "My card"));
    assert_eq!((mine.threads_per_multiprocessor, mine.shared_per_block), (2048, 227 << 10), "limits of 9.0");
    assert_eq!(find(mine.name).unwrap(), mine, "its name is what the environment hands on");
    let larger = find("like=h100-80gb,memory=94GiB").unwrap();
    assert_eq!((larger.multiprocessors, larger.total), (132, 94 << 30));
    assert_eq!(find("sm=72,memory=24GB,capability=8.9").unwrap().threads_per_multiprocessor, 1536);
    assert!(mine.nvlink && !find("sm=72,memory=24GB,capability=8.9").unwrap().nvlink);
    assert!(find("like=t4,nvlink=yes").unwrap().nvlink);
    let toy = find("sm=8,memory=512MiB,capability=8.0").unwrap();
    assert_eq!(toy.context, 32 * MIB, "a toy is not filled by the context of a large card");
    assert_eq!(find("sm=8,memory=512MiB,capability=8.0,context=10MiB").unwrap().context_range, (10 * MIB, 10 * MIB));
}

#[test]
fn an_invalid_description_is_told_with_an_example() {
    for (text, what) in [
        ("sm=132", "memory is missing"),
        ("sm=132,memory=80GiB", "capability is missing"),
        ("sm=132,memory=80GiB,capability=nine", "'nine' is no compute capability"),
        ("sm=0,memory=80GiB,capability=9.0", "'0' is no number of multiprocessors"),
        ("sm=132,memory=99TiB,capability=9.0", "'99TiB' is no size"),
        ("sm=132,memory=80 parsec,capability=9.0", "'80 parsec' is no size"),
        ("sm=132,memory=80GiB,capability=9.0,cores=5", "'cores' is not known"),
        ("sm=132,sm=5,memory=80GiB,capability=9.0", "sm is there twice"),
        ("like=h1000,memory=80GiB", "no preset is called 'h1000'"),
        ("like=h100-80gb,memory=128MiB,context=1GiB", "leaves nothing"),
        ("sm=132,memory=80GiB,capability=9.0,name=", "the name is empty"),
        ("like=t4,nvlink=perhaps", "nvlink=perhaps: yes or no"),
    ] {
        let message = find(text).unwrap_err().to_string();
        assert!(message.contains(what) && message.contains("write for example sm=132"), "{text}: {message}");
    }
}

#[test]
fn a_list_holds_presets_and_descriptions() {
    let names = |list: &str| find_all(list).unwrap().iter().map(|gpu| gpu.name).collect::<Vec<_>>();
    assert_eq!(names("t4, h100-80gb"), ["t4", "h100-80gb"]);
    assert_eq!(
        names("t4,sm=8,memory=1GiB,capability=8.0,h100-80gb"),
        ["t4", "sm=8,memory=1GiB,capability=8.0", "h100-80gb"]
    );
    assert_eq!(
        names("sm=8,memory=1GiB,capability=8.0,sm=16,memory=2GiB,capability=8.0"),
        ["sm=8,memory=1GiB,capability=8.0", "sm=16,memory=2GiB,capability=8.0"]
    );
    assert_eq!(names("like=t4,memory=1GiB;like=t4,memory=2GiB"), ["like=t4,memory=1GiB", "like=t4,memory=2GiB"]);
    assert!(find_all("").is_err() && find_all("t4,").is_err() && find_all("t4,memory=5GiB").is_err());
}

fn smi(arguments: &[&str]) -> nvidia_smi::SmiOutput {
    let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
    nvidia_smi::answer(&arguments, &find("h100-80gb").unwrap(), 2)
}

#[test]
fn nvidia_smi_answers_what_scripts_ask() {
    assert_eq!(smi(&["--query-gpu=memory.total", "--format=csv,noheader,nounits"]).text, "81090\n81090\n");
    assert_eq!(
        smi(&["--query-gpu=index,name,memory.free", "--format=csv", "-i", "1"]).text,
        "index, name, memory.free [MiB]\n1, NVIDIA H100 80GB HBM3, 81090 MiB\n"
    );
    assert_eq!(
        smi(&["--query-gpu", "compute_cap,driver_version", "--format", "csv,noheader", "--id=0"]).text,
        "9.0, 600.00.00\n"
    );
    let list = smi(&["-L"]).text;
    assert_eq!(list.lines().count(), 2);
    assert!(
        list.starts_with("GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-7374616c-6c6f-632d-6472-792d72756e00)"),
        "{list}"
    );
    assert_eq!(smi(&["--query-compute-apps=pid,used_memory", "--format=csv,noheader"]).text, "");
    let table = smi(&[]);
    assert_eq!((table.status, table.text.matches("0MiB / 81090MiB").count()), (0, 2));
    let widths: HashSet<_> = table.text.lines().map(str::len).collect();
    assert_eq!(widths.len(), 1, "a table has straight edges: {}", table.text);
}

#[test]
fn nvidia_smi_refuses_what_it_does_not_know() {
    assert_eq!(smi(&["--query-gpu=memory.colour", "--format=csv"]).status, 2);
    assert_eq!(smi(&["-i", "7"]).status, 6);
    assert_eq!(smi(&["topo", "-m"]).status, 2);
}
