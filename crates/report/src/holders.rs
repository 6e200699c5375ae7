//! Who holds the memory at a moment: by call site, and by module where the recording has marks of modules.

use std::collections::HashMap;
use std::hash::Hash;

use stalloc_trace::{Event, Mark, Request, StringId, Trace};

use crate::figures::{ModuleBytes, SiteBytes};
use crate::sites::Sites;

/// At most this many lines are listed.
const LISTED: usize = 1000;

/// The call sites of some requests, most bytes first. O(requests).
pub fn by_site<'a>(sites: &mut Sites<'_>, requests: impl Iterator<Item = &'a Request>) -> Vec<SiteBytes> {
    let sums = largest(requests.map(|request| (sites.known(request.stack), request)));
    sums.map(|(site, (bytes, blocks))| SiteBytes { site, bytes, blocks }).collect()
}

/// Bytes and blocks of some requests by what each is of, most bytes first.
fn largest<'a, K: Ord + Hash>(
    requests: impl Iterator<Item = (K, &'a Request)>,
) -> impl Iterator<Item = (K, (u64, usize))> {
    let mut sums: HashMap<K, (u64, usize)> = HashMap::new();
    for (of, request) in requests {
        let sum = sums.entry(of).or_default();
        *sum = (sum.0.saturating_add(request.rounded()), sum.1 + 1);
    }
    let mut list: Vec<_> = sums.into_iter().collect();
    list.sort_by(|(a, (most, _)), (b, (least, _))| least.cmp(most).then_with(|| a.cmp(b)));
    list.into_iter().take(LISTED)
}

/// The innermost module that ran when each request was made; empty where there are no marks of modules. O(events).
pub fn modules(trace: &Trace) -> Vec<Option<StringId>> {
    if !trace.events.iter().any(|event| matches!(event, Event::Mark(Mark::ModuleEnter(_)))) {
        return Vec::new();
    }
    let mut of = vec![None; trace.requests.len()];
    let mut entered: Vec<StringId> = Vec::new();
    for event in &trace.events {
        match event {
            Event::Mark(Mark::ModuleEnter(name)) => entered.push(*name),
            Event::Mark(Mark::ModuleExit(name)) => {
                // What an exception left is left too.
                if let Some(at) = entered.iter().rposition(|open| open == name) {
                    entered.truncate(at);
                }
            }
            Event::Alloc(id) => of[id.index()] = entered.last().copied(),
            _ => {}
        }
    }
    of
}

/// The modules of some requests, given with their numbers, most bytes first.
pub fn by_module<'a>(
    trace: &Trace,
    modules: &[Option<StringId>],
    requests: impl Iterator<Item = (usize, &'a Request)>,
) -> Vec<ModuleBytes> {
    if modules.is_empty() {
        return Vec::new();
    }
    let name = |index: usize| modules.get(index).copied().flatten().map_or("none", |id| trace.string(id));
    let sums = largest(requests.map(|(index, request)| (name(index), request)));
    sums.map(|(module, (bytes, blocks))| ModuleBytes { module: module.to_owned(), bytes, blocks }).collect()
}
