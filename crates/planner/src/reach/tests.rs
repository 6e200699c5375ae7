use super::*;
use crate::hash::Rng;

#[test]
fn the_highest_is_that_of_a_plain_list() {
    let mut rng = Rng::new(1);
    for sections in 1..80u32 {
        let mut plain: Vec<u64> = (0..sections).map(|_| rng.next() % 1000).collect();
        let mut reach = Reach::new(&plain);
        for _ in 0..50 {
            assert_eq!(Some(reach.highest()), plain.iter().copied().max());
            let from = rng.next() as u32 % sections;
            let to = from + rng.next() as u32 % (sections - from + 1);
            let lost = rng.next() % 50;
            reach.lose(from, to, lost);
            plain[from as usize..to as usize].iter_mut().for_each(|height| *height += lost);
        }
    }
}
