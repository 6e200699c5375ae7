//! Live bytes over time, whole and by category.

use stalloc_trace::{Event, RequestId, Time, Trace};

use crate::categories::Category;

/// Live bytes after each event that changes them.
#[derive(Clone, Debug, Default)]
pub struct LiveBytes {
    /// (event time, bytes after it); starts at time 0.
    pub total: Vec<(Time, u64)>,
    /// The request of each point but the first, and whether it began to live.
    changes: Vec<(RequestId, bool)>,
    /// Live bytes of each category at the start.
    start: [u64; Category::ALL.len()],
}

impl LiveBytes {
    /// Follows a trace. O(events).
    pub fn new(trace: &Trace, categories: &[Category]) -> Self {
        let mut live = LiveBytes::default();
        for (request, category) in trace.requests.iter().zip(categories) {
            if request.alloc.is_none() {
                let sum = &mut live.start[category.index()];
                *sum = sum.saturating_add(request.rounded());
            }
        }
        let mut bytes = live.start.iter().fold(0u64, |sum, one| sum.saturating_add(*one));
        live.total.push((0, bytes));
        for (time, event) in trace.events.iter().enumerate() {
            let (id, begins) = match event {
                Event::Alloc(id) => (*id, true),
                Event::FreeRequested(id) => (*id, false),
                _ => continue,
            };
            let size = trace.request(id).rounded();
            bytes = if begins { bytes.saturating_add(size) } else { bytes.saturating_sub(size) };
            live.total.push((time as Time, bytes));
            live.changes.push((id, begins));
        }
        live
    }

    /// Calls `visit(point, bytes of each category)` for every point of [`LiveBytes::total`], in order.
    pub fn by_category(
        &self,
        trace: &Trace,
        categories: &[Category],
        mut visit: impl FnMut(usize, &[u64; Category::ALL.len()]),
    ) {
        let mut sums = self.start;
        visit(0, &sums);
        for (point, &(id, begins)) in self.changes.iter().enumerate() {
            let size = trace.request(id).rounded();
            let sum = &mut sums[categories[id.index()].index()];
            *sum = if begins { sum.saturating_add(size) } else { sum.saturating_sub(size) };
            visit(point + 1, &sums);
        }
    }
}
