use super::*;
use crate::prepare::prepare;
use crate::{Buffer, Instance};

/// Random lifetimes, in a ring or not, some aligned and some fixed one above the other at instants apart.
fn random(k: u64, rng: &mut Rng) -> Instance {
    let mut below = |n: u64| rng.next() % n;
    let period = k.is_multiple_of(2).then_some(40);
    let mut buffer = |i: u64| {
        let (lower, alignment) = (below(40), [1, 1, 1, 4][below(4) as usize]);
        let fixed = (k.is_multiple_of(3) && i < 3).then_some(8 * i);
        let (lower, length) = if fixed.is_some() { (10 * i, 8) } else { (lower, 1 + below(12)) };
        Buffer { lower, upper: lower + length, size: 1 + below(16), alignment, fixed }
    };
    Instance { buffers: (0..40).map(&mut buffer).collect(), period, ..Instance::default() }
}

/// All pairs keep their order on both sides, and the ways fit below the limit.
fn assert_sound(e: &mut Ejections, k: u64) {
    for i in (0..e.size.len() as u32).filter(|&i| e.is_placed(i)).collect::<Vec<_>>() {
        let (low, high) = (e.way[0][i as usize], e.way[1][i as usize]);
        assert!(low + e.size[i as usize] + high <= e.limit, "{k}");
        let align = e.item(i).align;
        assert!(low.is_multiple_of(align) && (e.limit - e.end(1, i)).is_multiple_of(align), "{k}");
        let near = e.neighbours(i);
        for &j in near.iter().filter(|&&j| e.is_placed(j)) {
            let (under, over) = if low < e.way[0][j as usize] { (i, j) } else { (j, i) };
            assert!(e.end(0, under) <= e.way[0][over as usize], "{k}: {under} is not below {over}");
            assert!(e.end(1, over) <= e.way[1][under as usize], "{k}: {over} is not above {under}");
        }
        e.give_back(i, near);
    }
    for s in 0..e.part.sections {
        let lives = |i: &u32| [s, s + e.part.sections].iter().any(|s| (e.item(*i).lower..e.item(*i).upper).contains(s));
        let mut here: Vec<u32> = (0..e.size.len() as u32).filter(|i| e.is_placed(*i) && lives(i)).collect();
        here.sort_unstable_by_key(|&i| e.way[0][i as usize]);
        for pair in here.windows(2) {
            let known = [(0, 1), (1, 0)].map(|(i, j)| e.stacking.next(j, pair[i]).contains(&pair[j]));
            assert_eq!(known, [true, true], "{k}: {pair:?} follow each other in {s}");
        }
    }
}

#[test]
fn after_every_exchange_all_that_is_placed_has_room() {
    let mut rng = Rng::new(7);
    let (mut better, mut exchanges) = (0, 0);
    for k in 0..120 {
        for part in prepare(&random(k, &mut rng)).expect("sound").parts {
            let order: Vec<u32> = (0..part.items.len() as u32).collect();
            let mut fit = crate::first_fit::FirstFit::new(&part);
            let places = Places::new(&part, fit.run(&order, u64::MAX, u64::MAX).expect("no limit"));
            if places.top <= part.bound {
                continue;
            }
            let mut e = Ejections::new(&part, k);
            e.begin(&places, part.bound);
            for _ in 0..60 {
                assert_sound(&mut e, k);
                if e.out.is_empty() {
                    break;
                }
                e.step();
                exchanges += 1;
            }
            let (found, _) = e.improve(&places, part.bound, 1_000_000, Until::default());
            better += u32::from(found.is_some_and(|found| found.top < places.top && found.top >= part.bound));
        }
    }
    assert!(exchanges > 300 && better > 100, "{exchanges} {better}");
}
