//! Wheels: four blocks around a fifth, which no straight cut parts.

use super::blocks::{Block, Blocks};

/// Blocks that end where a middle begins that are looked at, at most.
const NEAREST: usize = 12;

/// The five of a wheel, and where they are: the first at the bottom to the left, the second in the middle on top of it, the
/// third on top of that and to the right; the fourth to the left on top of the first, and the fifth at the bottom to the right.
pub(super) type Wheel = [u32; 5];

/// Merges what makes a wheel and leaves nothing empty; how many wheels.
pub(super) fn merge_wheels(blocks: &mut Blocks) -> usize {
    let whole = blocks.whole();
    let mut ending: Vec<(u32, u32)> = whole.iter().map(|&k| (blocks.all[k as usize].upper, k)).collect();
    ending.sort_unstable();
    let mut made = 0;
    for middle in whole {
        let begin = blocks.all[middle as usize].lower;
        let from = ending.partition_point(|e| e.0 < begin);
        let mut before = ending[from..].iter().take(NEAREST).take_while(|e| e.0 == begin);
        if let Some((block, wheel)) = before.find_map(|&(_, left)| wheel(blocks, middle, left)) {
            blocks.merge_wheel(block, wheel);
            blocks.merge_exact();
            made += 1;
        }
    }
    made
}

/// The wheel around a middle with a block to the left, which ends where the middle begins, if there is one.
fn wheel(blocks: &mut Blocks, middle: u32, left: u32) -> Option<(Block, Wheel)> {
    let but = [middle, left];
    if !but.iter().all(|&k| blocks.is_whole(k)) {
        return None;
    }
    let [m, l] = but.map(|k| blocks.all[k as usize]);
    let above = blocks.starting(m.lower, l.size.checked_sub(m.size).filter(|&size| size > 0)?, but)?;
    let below = blocks.living(l.lower, m.upper, but)?;
    let (a, b) = (blocks.all[above as usize], blocks.all[below as usize]);
    let right = blocks.starting(m.upper, b.size.checked_add(m.size)?, [above, below])?;
    let size = b.size.checked_add(l.size)?;
    let fits = blocks.all[right as usize].upper == a.upper && a.upper > m.upper && right != left;
    fits.then_some((Block { lower: l.lower, upper: a.upper, size, ..m }, [below, middle, above, left, right]))
}
