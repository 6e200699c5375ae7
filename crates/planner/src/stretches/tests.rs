use super::*;
use crate::hash::Rng;
use crate::prepare::prepare;
use crate::sweep::sweep;

/// Short lifetimes in a row, so that there are many stretches, and now and then a long one.
fn random(buffers: u64, rng: &mut Rng) -> Instance {
    let mut below = |n: u64| rng.next() % n;
    let mut buffer = |_| {
        let lower = below(buffers);
        let length = if below(8) == 0 { 1 + below(buffers / 2) } else { 1 + below(8) };
        Buffer { lower, upper: lower + length, size: 1 + below(32), alignment: 1, fixed: None }
    };
    Instance { buffers: (0..buffers).map(&mut buffer).collect(), period: None, ..Instance::default() }
}

fn overlap(part: &Part, offsets: &[u64]) -> bool {
    let all: Vec<(&Item, u64)> = part.items.iter().zip(offsets.iter().copied()).collect();
    all.iter().enumerate().any(|(k, (a, from))| {
        let meets = |(b, other): &(&Item, u64)| {
            a.lower < b.upper && b.lower < a.upper && *from < other + b.size && *other < from + a.size
        };
        *from < part.base || all[..k].iter().any(meets)
    })
}

#[test]
fn whatever_is_found_around_stretches_overlaps_nowhere_and_is_lower() {
    let mut rng = Rng::new(1);
    let (mut better, mut reached) = (0, 0);
    for k in 0..400 {
        let instance = random(40 + k % 60, &mut rng);
        for part in prepare(&instance).expect("sound").parts {
            let places = Places::new(&part, sweep(&part, false, u64::MAX).expect("no limit"));
            let stretches = if k % 2 == 0 { Stretches::fast() } else { Stretches::thorough() };
            let mut stretches = Stretches { share: 1, ..stretches };
            let options = SolveOptions { work_limit: Some(100_000), ..SolveOptions::default() };
            let clock = SolveClock::new(&options, crate::solve::solve_within);
            let Some(found) = stretches.improve(&part, &places, part.bound, k, &clock).0 else { continue };
            assert!(!overlap(&part, &found.offsets), "{k}");
            assert_eq!(found, Places::new(&part, found.offsets.clone()), "{k}");
            assert!(part.bound <= found.top && found.top < places.top, "{k}");
            better += 1;
            reached += u32::from(found.top == part.bound);
        }
    }
    assert!(better > 100 && reached > 50, "{better} {reached}");
}

#[test]
fn stretches_of_which_items_live_together_are_joined() {
    // The second and the third live together, but in neither of the stretches around the first and the last.
    let lives = [(0, 2), (1, 5), (4, 9), (8, 10)];
    let item = |(id, &(lower, upper)): (usize, &(u32, u32))| Item { lower, upper, size: 1, align: 1, id: id as u32 };
    let part = Part { items: lives.iter().enumerate().map(item).collect(), sections: 10, ..Part::default() };
    let stretch = |from, to| Stretch { from, to, ..Stretch::default() };
    let mut stretches = Stretches { all: vec![stretch(8, 10), stretch(0, 2)], share: 1, ..Stretches::fast() };
    assert_eq!(stretches.gather(&part), Some(vec![vec![0, 1, 2, 3]]));
    assert_eq!(stretches.all.iter().map(|s| (s.from, s.to)).collect::<Vec<_>>(), [(0, 10)]);
    let mut apart = Stretches { all: vec![stretch(9, 10), stretch(0, 1)], share: 1, ..Stretches::fast() };
    assert_eq!(apart.gather(&part), Some(vec![vec![0], vec![3]]));
    assert_eq!(Stretches { share: 3, ..apart }.gather(&part), None);
}
