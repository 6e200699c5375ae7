//! Which ranks of a world are tried.

/// Worlds up to this size are tried rank by rank.
const SMALL_WORLD: u32 = 8;

/// The ranks to try first: those that were asked for, all of a small world, else the first two, those at the quarters and the last: every
/// stage of a pipeline of four, the first and the last of a longer one.
pub fn to_try(world_size: u32, wanted: &[u32]) -> Vec<u32> {
    let mut ranks: Vec<u32> = match wanted {
        [] if world_size <= SMALL_WORLD => (0..world_size).collect(),
        [] => {
            let quarter = |part: u32| (u64::from(world_size) * u64::from(part) / 4) as u32;
            vec![0, 1, quarter(1), quarter(2), quarter(3), world_size - 1]
        }
        _ => wanted.to_vec(),
    };
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// A rank with those that are like it, itself included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// The rank that is tried for all of them.
    pub rank: u32,
    /// All of them.
    pub members: Vec<u32>,
}

/// Sorts ranks by what they recorded: (rank, hash of each of its devices).
pub fn classes(recorded: &[(u32, Vec<u64>)]) -> Vec<Class> {
    let mut classes: Vec<(&[u64], Class)> = Vec::new();
    for (rank, content) in recorded {
        match classes.iter_mut().find(|(other, _)| other == content) {
            Some((_, class)) => class.members.push(*rank),
            None => classes.push((content, Class { rank: *rank, members: vec![*rank] })),
        }
    }
    classes.into_iter().map(|(_, class)| class).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_worlds_are_tried_whole_and_large_ones_at_ends_and_quarters() {
        assert_eq!(to_try(1, &[]), [0]);
        assert_eq!(to_try(8, &[]), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(to_try(1024, &[]), [0, 1, 256, 512, 768, 1023]);
        assert_eq!(to_try(9, &[]), [0, 1, 2, 4, 6, 8]);
        assert_eq!(to_try(u32::MAX, &[]).last(), Some(&(u32::MAX - 1)));
        assert_eq!(to_try(1024, &[7, 0, 7]), [0, 7]);
    }

    #[test]
    fn ranks_that_record_the_same_are_one_class() {
        let recorded = [(0, vec![5, 6]), (1, vec![7]), (2, vec![5, 6]), (3, vec![5])];
        let members: Vec<_> = classes(&recorded).into_iter().map(|class| class.members).collect();
        assert_eq!(members, [vec![0, 2], vec![1], vec![3]]);
    }
}
