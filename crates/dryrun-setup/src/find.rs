//! Finds the GPUs that a user names: presets, and what is described.

use crate::presets::{GPUS, preset, sizes};
use crate::{Gpu, SetupError, description};

/// The preset with this name, whatever its case, or the only one of it (`h100` is `h100-80gb`), or the GPU that a description such as
/// `sm=132,memory=80GiB,capability=9.0,name=mine` tells of.
///
/// # Errors
/// [`SetupError::NoGpu`] and [`SetupError::UnknownGpu`], with all the names; [`SetupError::Description`], with what is wrong in it.
pub fn find(name: &str) -> Result<Gpu, SetupError> {
    if name.contains('=') {
        return description::parse(name);
    }
    if name.is_empty() {
        return Err(SetupError::NoGpu { known: GPUS.iter().map(|gpu| gpu.name).collect::<Vec<_>>().join(", ") });
    }
    preset(name).ok_or_else(|| {
        let sizes: Vec<_> = sizes(name).map(|gpu| gpu.name).collect();
        let known = if sizes.is_empty() { GPUS.iter().map(|gpu| gpu.name).collect() } else { sizes };
        SetupError::UnknownGpu { name: name.to_owned(), known: known.join(", ") }
    })
}

/// The GPUs of a list: presets separated by commas, descriptions by commas or semicolons. What follows a description after a
/// comma belongs to it as long as it has an equals sign, unless it starts another one (`sm=` or `like=` once more).
pub fn find_all(list: &str) -> Result<Vec<Gpu>, SetupError> {
    let mut found: Vec<String> = Vec::new();
    for group in list.split(';') {
        let mut is_open = false;
        for piece in group.split(',') {
            let key = piece.split_once('=').map(|(key, _)| key.trim());
            let starts = |description: &String| {
                description.split(',').any(|other| other.split_once('=').map(|(name, _)| name.trim()) == key)
            };
            match found.last_mut() {
                Some(last) if is_open && key.is_some() && !starts(last) => {
                    last.push(',');
                    last.push_str(piece);
                }
                _ => found.push(piece.to_owned()),
            }
            is_open = key.is_some();
        }
    }
    found.iter().map(|name| find(name.trim())).collect()
}
