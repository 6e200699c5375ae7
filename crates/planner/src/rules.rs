//! The orders in which items are placed.
//!
//! No order is best everywhere, so several are tried. What most of them miss is that only the sections near the peak
//! are hard: there nothing may be wasted, elsewhere there is room. So the items that live near the peak, the **core**,
//! may go first, whatever their size; the others find places around them. Where many micro-batches are in flight,
//! what each keeps for its backward pass is a stack that grows and shrinks; the **long-lived** in order of time, then
//! the short-lived around them, give each stack the place of one that is gone.

use crate::part::{Item, Part};

/// What items are ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Longest lifetime first, then largest.
    Length,
    /// Largest first, then longest.
    Size,
    /// Largest product of lifetime and size first.
    Area,
    /// Earliest first, then longest.
    Lower,
    /// Latest end first, then longest.
    Upper,
}

impl Rule {
    fn key(self, i: &Item) -> (u64, u64) {
        let (length, size) = (u64::MAX - u64::from(i.length()), u64::MAX - i.size);
        match self {
            Rule::Length => (length, size),
            Rule::Size => (size, length),
            Rule::Area => (u64::MAX - i.size.saturating_mul(u64::from(i.length())), length),
            Rule::Lower => (i.lower.into(), length),
            Rule::Upper => (u64::MAX - u64::from(i.upper), length),
        }
    }
}

/// Which items go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// All alike.
    All,
    /// The core: what lives where the load is above `1 - margin/1000` of its maximum.
    Heavy(u64),
    /// What lives through at least so many thousandths of the sections.
    Long(u64),
}

/// An order: those that go first by one rule, the others by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ItemOrder {
    pub first: First,
    pub rule: Rule,
    pub others: Rule,
}

/// All by one rule.
pub(crate) const fn all(rule: Rule) -> ItemOrder {
    ItemOrder { first: First::All, rule, others: rule }
}

/// The core by one rule, the others by another.
pub(crate) const fn core(margin: u64, rule: Rule, others: Rule) -> ItemOrder {
    ItemOrder { first: First::Heavy(margin), rule, others }
}

/// The long-lived by one rule, the others by another.
pub(crate) const fn long(thousandths: u64, rule: Rule, others: Rule) -> ItemOrder {
    ItemOrder { first: First::Long(thousandths), rule, others }
}

/// The largest load that each item lives through.
pub(crate) struct Heaviest {
    by_item: Vec<u64>,
    max: u64,
}

impl Heaviest {
    /// O(n log m), by a tree of maxima over the sections.
    pub fn new(part: &Part) -> Heaviest {
        let loads = crate::bound::loads(part);
        let m = loads.len();
        let mut tree = vec![0; m];
        tree.extend_from_slice(&loads);
        for k in (1..m).rev() {
            tree[k] = tree[2 * k].max(tree[2 * k + 1]);
        }
        let most = |from: u32, to: u32| {
            let (mut a, mut b, mut most) = (from as usize + m, to as usize + m, 0);
            while a < b {
                if a % 2 == 1 {
                    most = most.max(tree[a]);
                    a += 1;
                }
                if b % 2 == 1 {
                    b -= 1;
                    most = most.max(tree[b]);
                }
                (a, b) = (a / 2, b / 2);
            }
            most
        };
        let of = |i: &Item| {
            let end = part.sections;
            most(i.lower, i.upper.min(end)).max(if i.upper > end { most(0, i.upper - end) } else { 0 })
        };
        Heaviest { by_item: part.items.iter().map(of).collect(), max: loads.iter().copied().max().unwrap_or(0) }
    }
}

impl Heaviest {
    /// Of one item.
    pub fn of(&self, i: u32) -> u64 {
        self.by_item[i as usize]
    }

    /// `1 - margin/1000` of the maximum.
    pub fn least(&self, margin: u64) -> u64 {
        self.max - (u128::from(self.max) * u128::from(margin) / 1000) as u64
    }
}

/// The items of a part in an order, best first. Stable: equals in the part's own order.
pub(crate) fn arrange(part: &Part, heaviest: &Heaviest, order: ItemOrder) -> Vec<u32> {
    let goes_first = |i: usize| match order.first {
        First::All => true,
        First::Heavy(margin) => heaviest.by_item[i] >= heaviest.least(margin),
        First::Long(thousandths) => u64::from(part.items[i].length()) * 1000 >= u64::from(part.sections) * thousandths,
    };
    let mut keyed: Vec<(bool, (u64, u64), u32)> = Vec::with_capacity(part.items.len());
    for (i, item) in part.items.iter().enumerate() {
        let first = goes_first(i);
        let rule = if first { order.rule } else { order.others };
        keyed.push((!first, rule.key(item), i as u32));
    }
    keyed.sort_unstable();
    keyed.into_iter().map(|(.., i)| i).collect()
}
