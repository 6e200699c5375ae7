//! Where a job's plans lie: as `stalloc run` lays them out, or the artifact.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A rank's plans in a folder, by device. They lie in it or in its `output/plan` and are called `rank<R>_dev<N>.plan`.
/// A folder with plans of one rank alone serves every rank.
pub fn plans(folder: &Path, rank: u64) -> BTreeMap<i32, PathBuf> {
    let mut found: BTreeMap<u64, BTreeMap<i32, PathBuf>> = BTreeMap::new();
    for folder in [folder.to_owned(), folder.join("output/plan")] {
        let Ok(files) = std::fs::read_dir(folder) else { continue };
        for path in files.filter_map(|file| Some(file.ok()?.path())) {
            if let Some((rank, device)) = numbers(&path) {
                found.entry(rank).or_default().entry(device).or_insert(path);
            }
        }
    }
    if found.len() == 1 {
        return found.into_values().next().unwrap_or_default();
    }
    found.remove(&rank).unwrap_or_default()
}

fn numbers(path: &Path) -> Option<(u64, i32)> {
    let name = path.file_name()?.to_str()?.strip_suffix(".plan")?;
    let (rank, device) = name.strip_prefix("rank")?.split_once("_dev")?;
    Some((rank.parse().ok()?, device.parse().ok().filter(|&device| device >= 0)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_found_by_rank_and_device_and_other_files_are_left_alone() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let output = folder.path().join("output/plan");
        std::fs::create_dir_all(&output)?;
        for name in ["rank0_dev0.plan", "rank0_devX.plan", "rank0_dev-1.plan", "rank_dev0.plan", "notes.txt"] {
            std::fs::write(folder.path().join(name), "")?;
        }
        std::fs::write(output.join("rank0_dev1.plan"), "")?;
        // One rank's plans serve every rank.
        assert_eq!(plans(folder.path(), 7).into_keys().collect::<Vec<_>>(), [0, 1]);
        std::fs::write(output.join("rank3_dev2.plan"), "")?;
        assert_eq!(plans(folder.path(), 3).into_keys().collect::<Vec<_>>(), [2]);
        assert!(plans(folder.path(), 7).is_empty());
        assert!(plans(&folder.path().join("nowhere"), 0).is_empty());
        Ok(())
    }
}
