//! What was known when memory ran out: the holders of blocks in Python, states still to come, the memory of others. Written by the
//! Python package next to PyTorch's own snapshot; every field may be missing, and none is believed beyond what it says.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use stalloc_trace::site::BACKWARD_PASS;
use stalloc_trace::{Request, RequestId, StackId, Time, Trace};

use crate::sites::{Sites, UNKNOWN, passes};

/// A container of as many tensors has been filled.
pub(crate) const MANY: usize = 12;

/// What was known when memory ran out.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Facts {
    pub device: u32,
    /// Bytes that the device has, had free, and that PyTorch's allocator held.
    pub total: u64,
    pub free: u64,
    pub reserved: u64,
    /// Bytes that the program allows itself; 0 where that is not known.
    pub allowed: u64,
    /// The program's line that asked.
    pub line: Option<String>,
    /// Whether memory of the host was to be pinned.
    pub pinning: bool,
    /// Bytes of the host that were pinned.
    pub pinned: u64,
    pub grad_enabled: bool,
    /// Whether all models are in evaluation mode.
    pub evaluating: bool,
    pub optimizers: Vec<OptimizerFacts>,
    pub missing_gradients: u64,
    /// Requests that failed after it.
    pub followed: u64,
    pub holders: Vec<HolderFacts>,
    /// What NVML says of processes on the device.
    pub processes: Vec<OtherProcess>,
    pub pid: u64,
    /// Live bytes over the time that the process ran: seconds and bytes.
    pub series: Vec<(f64, u64)>,
    pub command: String,
}

/// An optimizer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct OptimizerFacts {
    pub name: String,
    /// Bytes of its parameters.
    pub parameters: u64,
    /// Bytes of states that it has not made yet.
    pub missing: u64,
}

/// A process on the device.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct OtherProcess {
    pub pid: u64,
    pub name: String,
    pub bytes: u64,
}

/// What holds some blocks.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct HolderFacts {
    pub kind: String,
    pub name: String,
    pub line: Option<String>,
    pub bytes: u64,
    pub tensors: usize,
    /// Bytes that the tensors use of it: less where they are views of what is kept.
    pub used: Option<u64>,
    /// Whether it has one tensor for each module, so that it does not grow.
    pub is_bounded: bool,
    /// Whether it is a graph that ends in no parameter that an optimizer has.
    pub is_untrained: bool,
    /// The class of what is in it, where these are no tensors.
    pub content: String,
    /// Some of the blocks, the largest first.
    pub addresses: Vec<u64>,
}

/// Who holds memory, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HolderBytes {
    /// Its name: ``list `seen` in train.py:31``.
    pub holder: String,
    /// What it is: `container`, `attribute`, `graph`, `parameters`...
    pub kind: String,
    /// Where it is made, where that is known.
    pub line: Option<String>,
    /// Bytes.
    pub bytes: u64,
    /// Tensors.
    pub blocks: usize,
    /// The line that allocated most of them.
    pub site: Option<String>,
    /// Bytes that the tensors use of it, where they are views of what is kept.
    #[serde(skip)]
    pub used: Option<u64>,
    /// Whether it does not grow.
    #[serde(skip)]
    pub is_bounded: bool,
    /// Whether most was loaded from a file.
    #[serde(skip)]
    pub is_loaded: bool,
    /// Whether much is models' or optimizers'.
    #[serde(skip)]
    pub is_models: bool,
    /// Whether no optimizer has the parameters in which the graph ends.
    #[serde(skip)]
    pub is_untrained: bool,
    /// Whether it was filled piece by piece over what was recorded.
    #[serde(skip)]
    pub is_filled: bool,
    /// Whether no backward pass has run since the first of it was made, as far as call stacks tell.
    #[serde(skip)]
    pub is_pending: bool,
    /// The class of what is in it, where these are no tensors.
    #[serde(skip)]
    pub content: String,
}

impl Facts {
    /// Those of a trace, if there are any for its device.
    pub fn of(trace: &Trace) -> Option<Facts> {
        let facts: Facts = serde_json::from_str(trace.facts.as_deref()?).ok()?;
        (facts.device == trace.device).then_some(facts)
    }

    /// The holders, each with the line that allocated most of what it holds; last what nothing in Python holds.
    pub fn holders(&self, trace: &Trace, live: u64, sites: &mut Sites<'_>) -> Vec<HolderBytes> {
        let at: HashMap<u64, RequestId> = living(trace).collect();
        // What was recorded without a stack, among what has one, was asked for by a thread without Python.
        let backward = |request: &&Request| matches!(&*sites.known(request.stack), BACKWARD_PASS | UNKNOWN);
        let last_backward = trace.requests.iter().filter(backward).filter_map(|request| request.alloc).max();
        let mut list: Vec<HolderBytes> = self
            .holders
            .iter()
            .map(|one| {
                let mut by_site: HashMap<std::rc::Rc<str>, u64> = HashMap::new();
                let (mut loaded, mut models) = (0u64, 0u64);
                let mut born: Vec<Time> = Vec::new();
                for id in one.addresses.iter().filter_map(|address| at.get(address)) {
                    let request = trace.request(*id);
                    *by_site.entry(sites.known(request.stack)).or_default() += request.rounded() >> 9;
                    loaded += if loads(trace, request.stack) { request.rounded() >> 9 } else { 0 };
                    models += if is_models(trace, request.stack) { request.rounded() >> 9 } else { 0 };
                    born.extend(request.alloc);
                }
                let first = born.iter().min().copied();
                let sum: u64 = by_site.values().sum();
                let is_loaded = loaded * 2 > sum;
                let most = by_site.into_iter().max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
                let site = most.map(|(site, _)| site.to_string()).filter(|site| crate::sites::is_named(site));
                HolderBytes {
                    holder: one.name.clone(),
                    kind: one.kind.clone(),
                    line: one.line.clone(),
                    bytes: one.bytes,
                    blocks: one.tensors,
                    used: one.used.filter(|used| *used < one.bytes / 2),
                    is_bounded: one.is_bounded,
                    is_loaded,
                    is_models: models * 4 > sum,
                    is_untrained: one.is_untrained,
                    is_pending: site.is_some() && first.is_some() && last_backward < first,
                    is_filled: !one.is_bounded && is_filled(born, trace.end()),
                    site,
                    content: one.content.clone(),
                }
            })
            .collect();
        let held = list.iter().map(|one| one.bytes).fold(0, u64::saturating_add);
        let rest = live.saturating_sub(held);
        if !list.is_empty() && rest > live / 50 {
            list.push(HolderBytes {
                holder: "nobody in Python: what an operation that runs needs, or a library keeps".into(),
                kind: "native".into(),
                bytes: rest,
                is_bounded: true,
                ..HolderBytes::default()
            });
        }
        list.sort_by_key(|one| std::cmp::Reverse(one.bytes));
        list
    }

    /// Bytes of the device that neither this process's tensors nor a usual context take.
    pub fn foreign(&self) -> u64 {
        let context = (self.total / 5).min(768 << 20);
        self.total.saturating_sub(self.free).saturating_sub(self.reserved).saturating_sub(context)
    }

    /// Other processes on the device.
    pub fn others(&self) -> impl Iterator<Item = &OtherProcess> {
        self.processes.iter().filter(|one| one.pid != self.pid && one.bytes > 0)
    }

    /// Bytes of optimizer states that are still to be made, and of which optimizer most are.
    pub fn states_to_come(&self) -> (u64, &str) {
        let sum = self.optimizers.iter().map(|one| one.missing).fold(0, u64::saturating_add);
        let most = self.optimizers.iter().max_by_key(|one| one.missing);
        (sum, most.map_or("", |one| &one.name))
    }

    /// Bytes that autograd's graphs hold.
    pub fn held_by_graphs(&self) -> u64 {
        let graphs = self.holders.iter().filter(|one| matches!(&*one.kind, "graph" | "graph_of_many"));
        graphs.map(|one| one.bytes).fold(0, u64::saturating_add)
    }
}

/// Whether a call stack goes through PyTorch's reading of files.
fn loads(trace: &Trace, stack: StackId) -> bool {
    trace.stacks.get(stack).iter().any(|frame| trace.string(frame.file).ends_with("torch/serialization.py"))
}

/// Whether a call stack builds, copies or trains a model.
fn is_models(trace: &Trace, stack: StackId) -> bool {
    let (_, optimizer, _, built) = passes(trace, stack);
    let is_copy = |file: &str| file.ends_with("/copy.py");
    optimizer || built || trace.stacks.get(stack).iter().any(|frame| is_copy(trace.string(frame.file)))
}

/// Whether blocks came one by one over at least half of what was recorded, with no long pause.
fn is_filled(mut born: Vec<Time>, end: Time) -> bool {
    born.sort_unstable();
    let (Some(first), Some(last)) = (born.first(), born.last()) else { return false };
    let span = last - first;
    born.len() >= MANY && span >= end / 2 && born.windows(2).all(|pair| pair[1] - pair[0] <= span / 3)
}

/// The requests that live at the trace's end, by address.
fn living(trace: &Trace) -> impl Iterator<Item = (u64, RequestId)> {
    let requests = trace.requests.iter().enumerate();
    requests
        .filter(|(_, request)| request.free_requested.is_none())
        .filter_map(|(index, request)| Some((request.address?, RequestId(index as u32))))
}
