use super::*;
use crate::hash::Rng;
use crate::part::Places;
use crate::prepare::prepare;
use crate::{Buffer, Instance};

#[test]
fn a_run_is_given_up_exactly_if_its_end_would_be_too_high() {
    let mut rng = Rng::new(1);
    let mut given_up = 0;
    for k in 0..2000 {
        let mut below = |n: u64| rng.next() % n;
        let mut buffer = |_| {
            let (lower, align) = (below(20), if k % 3 == 0 { below(6) } else { 0 });
            Buffer { lower, upper: lower + 1 + below(12), size: 1 + below(32), alignment: 1 << align, fixed: None }
        };
        let buffers = (0..12).map(&mut buffer).collect();
        let instance = Instance { buffers, period: (k % 2 == 0).then_some(20), ..Instance::default() };
        for part in prepare(&instance).expect("sound").parts {
            let layout = TreeLayout::new(&part.items);
            let order: Vec<u32> = (0..part.items.len() as u32).collect();
            let run = |limit| best_fit(&part, &layout, &order, (limit, u64::MAX), Until::default()).0;
            let whole = run(u64::MAX).expect("no limit");
            let top = Places::new(&part, whole.clone()).top;
            assert_eq!(run(top + 1), Some(whole), "{k}");
            assert_eq!(run(top), None, "{k}");
            given_up += 1;
        }
    }
    assert!(given_up > 1000, "{given_up}");
}
