//! A tensor that is made anew, larger each time, while the one before it still lives: a cache grown by `torch.cat`.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use stalloc_trace::{Request, StackId, Time, Trace};

use crate::failure::failures;
use crate::figures::{Growth, SiteBytes};
use crate::sites::Sites;

/// Fewer sizes are no growth.
const SIZES: usize = 8;
/// One of so many may be smaller than the one before it.
const RISING: usize = 20;
/// The last is larger than the first by this factor at least.
const FACTOR: f64 = 1.2;
/// What the line holds at the end is this share of what was needed, at least.
const SHARE: f64 = 0.05;
/// A piece is added at a time: one that makes it larger by this factor is another batch.
const LEAP: f64 = 1.5;

/// What grows so, if anything does. O(requests log requests).
pub fn enlarged(trace: &Trace, needed: u64, sites: &mut Sites<'_>) -> Option<Growth> {
    let mut by_stack: HashMap<StackId, Vec<&Request>> = HashMap::new();
    // A program that ends gives everything back: of one that failed what counts lived then.
    let end = failures(trace).next().map_or(trace.end(), |failed| failed.time + 4);
    for request in trace.requests.iter().filter(|request| request.alloc.is_some_and(|alloc| alloc < end)) {
        by_stack.entry(request.stack).or_default().push(request);
    }
    // Where stacks are kept of new peaks alone, sizes with one only rise: those without may be of the same line.
    let nameless = by_stack.remove(&StackId::NONE).unwrap_or_default();
    let grown = |(stack, requests): (&StackId, &Vec<&Request>)| {
        let found = grown(end, &sites.known(*stack), requests, needed)?;
        let (least, most) = (requests.iter().map(|one| one.size).min()?, requests.iter().map(|one| one.size).max()?);
        let alike = || nameless.iter().filter(|one| (least..=most).contains(&one.size));
        let falling = alike().zip(alike().skip(1)).filter(|(one, next)| next.size < one.size).count();
        (falling * RISING < alike().count().max(requests.len())).then_some(found)
    };
    let mut found: Vec<Growth> = by_stack.iter().filter_map(grown).collect();
    found.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.sites[0].site.cmp(&b.sites[0].site)));
    found.into_iter().next()
}

fn grown(end: Time, site: &Rc<str>, requests: &[&Request], needed: u64) -> Option<Growth> {
    // Small ones next to the large (an index, a mask) are not what grows, nor is what the line asks for in one size.
    let mut often: HashMap<u64, usize> = HashMap::new();
    requests.iter().for_each(|one| *often.entry(one.size).or_default() += 1);
    let mut main: Vec<&&Request> = requests.iter().filter(|one| often[&one.size] * 4 < requests.len()).collect();
    let (first, last) = (*main.first()?, *main.last()?);
    main.retain(|one| one.size.saturating_mul(2) >= first.size);
    let rising = main.windows(2).filter(|pair| pair[0].size <= pair[1].size).count();
    let sizes: HashSet<u64> = main.iter().map(|one| one.rounded()).collect();
    if sizes.len() < SIZES
        || (main.len() - 1 - rising) * RISING > main.len() - 1
        || (last.size as f64) < first.size as f64 * FACTOR
    {
        return None;
    }
    // It begins small; what has grown for long grows by less than a half at once.
    let leaps = main.windows(2).skip(main.len() / 2).any(|pair| pair[1].size as f64 > pair[0].size as f64 * LEAP);
    if leaps {
        return None;
    }
    // What it replaces lives until it is there, and goes then.
    let until = |request: &Request| request.free_requested.unwrap_or(Time::MAX);
    let replaced =
        main.windows(2).filter(|pair| until(pair[0]) != Time::MAX && until(pair[0]) > pair[1].alloc.unwrap_or(0));
    let copied = replaced.count();
    let gone = main.iter().filter(|one| until(one) < end).count();
    if copied * 2 < main.len().saturating_sub(1) || gone * 4 < main.len() * 3 {
        return None;
    }
    let lives: Vec<&&&Request> = main.iter().filter(|one| until(one) >= end.saturating_sub(3)).collect();
    let bytes = lives.iter().map(|one| one.rounded()).fold(0, u64::saturating_add);
    if (bytes as f64) < needed as f64 * SHARE {
        return None;
    }
    let steps = sizes.len();
    let added = bytes.saturating_sub(first.rounded().saturating_mul(lives.len() as u64)).max(1);
    let sites = vec![SiteBytes { site: Rc::clone(site), bytes, blocks: lives.len() }];
    let (bytes_per_step, number) = ((added / steps as u64).max(1), steps as u64);
    Some(Growth { bytes_per_step, steps, bytes: added, number, turns_of: None, sites })
}
