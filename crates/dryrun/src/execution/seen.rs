//! Products whose sizes the matrix library has met before: for others it has to choose a kernel first.

use std::{
    collections::HashSet,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash},
    sync::{LazyLock, Mutex, PoisonError},
};

/// So many are remembered; then all are forgotten.
const MOST: usize = 1 << 16;

static SEEN: LazyLock<Mutex<HashSet<u64>>> = LazyLock::new(Mutex::default);

/// Whether nothing with the same hash was met before.
pub fn is_new(product: &impl Hash) -> bool {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(product);
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    if seen.len() == MOST {
        seen.clear();
    }
    seen.insert(hash)
}

#[cfg(test)]
mod tests {
    use super::is_new;

    #[test]
    fn a_product_is_new_once() {
        assert!(is_new(&("a product", 1)));
        assert!(!is_new(&("a product", 1)));
        assert!(is_new(&("a product", 2)));
    }
}
