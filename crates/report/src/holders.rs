//! Who holds the memory at a moment: by call site, and by module where the recording has marks of modules.

use std::collections::HashMap;
use std::rc::Rc;

use stalloc_trace::{Event, Mark, Request, StringId, Trace};

use crate::figures::{ModuleBytes, SiteBytes};
use crate::sites::Sites;

/// At most this many lines are listed.
const LISTED: usize = 1000;

/// The call sites of some requests, most bytes first. O(requests).
pub fn by_site<'a>(sites: &mut Sites<'_>, requests: impl Iterator<Item = &'a Request>) -> Vec<SiteBytes> {
    let mut sums: HashMap<Rc<str>, (u64, usize)> = HashMap::new();
    for request in requests {
        let sum = sums.entry(sites.known(request.stack)).or_default();
        sum.0 = sum.0.saturating_add(request.rounded());
        sum.1 += 1;
    }
    let mut list: Vec<_> = sums.into_iter().map(|(site, (bytes, blocks))| SiteBytes { site, bytes, blocks }).collect();
    list.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.site.cmp(&b.site)));
    list.truncate(LISTED);
    list
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
    let mut sums: HashMap<Option<StringId>, (u64, usize)> = HashMap::new();
    for (index, request) in requests {
        let sum = sums.entry(modules.get(index).copied().flatten()).or_default();
        sum.0 = sum.0.saturating_add(request.rounded());
        sum.1 += 1;
    }
    let name = |id: Option<StringId>| id.map_or("none".to_owned(), |id| trace.string(id).to_owned());
    let named = sums.into_iter().map(|(id, (bytes, blocks))| ModuleBytes { module: name(id), bytes, blocks });
    let mut list: Vec<_> = named.collect();
    list.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.module.cmp(&b.module)));
    list.truncate(LISTED);
    list
}
