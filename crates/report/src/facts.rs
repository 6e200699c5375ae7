//! What was known when memory ran out: the holders of blocks in Python, states still to come, the memory of others. Written by the
//! Python package next to PyTorch's own snapshot; every field may be missing, and none is believed beyond what it says.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use stalloc_trace::site::BACKWARD_PASS;
use stalloc_trace::{Request, RequestId, StackId, Time, Trace};

use crate::sites::{Passes, Sites, UNKNOWN, passes};

/// A container of as many tensors has been filled.
pub(crate) const MANY: usize = 12;

/// What was known when memory ran out; `None` and empty: nobody saw it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Facts {
    pub device: u32,
    /// Bytes that the device has, had free, and that PyTorch's allocator held.
    pub total: Option<u64>,
    pub free: Option<u64>,
    pub reserved: Option<u64>,
    /// Bytes that the program allows itself.
    pub allowed: Option<u64>,
    /// Whether memory of the host was to be pinned, and bytes of the host that were.
    pub pinning: Option<bool>,
    pub pinned: Option<u64>,
    pub grad_enabled: Option<bool>,
    /// Whether autocast's cache is off.
    pub is_uncached: Option<bool>,
    /// Whether all models are in evaluation mode.
    pub evaluating: Option<bool>,
    pub optimizers: Option<Vec<OptimizerFacts>>,
    pub missing_gradients: Option<u64>,
    /// Bytes of tensors as wide as an embedding has rows, the model's own apart.
    pub logits: Option<u64>,
    /// Bytes that autograd keeps of what is made of parameters alone.
    pub remade: Option<u64>,
    /// Steps that had begun.
    pub steps: Option<u64>,
    /// Requests that failed after it.
    pub followed: u64,
    pub holders: Vec<HolderBytes>,
    /// What NVML says of processes on the device.
    pub processes: Option<Vec<OtherProcess>>,
    pub pid: u64,
    /// Live bytes over the time that the process ran: seconds and bytes.
    pub series: Vec<(f64, u64)>,
    pub command: String,
    /// The stand-in that it ran on, as `--dry-run` takes it.
    pub dry_run: String,
}

/// An optimizer when memory ran out: bytes of its parameters, of states not made yet, of parameters in no model.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct OptimizerFacts {
    pub name: String,
    /// Bytes of its parameters.
    pub parameters: u64,
    /// Bytes of states that it has not made yet, and whether it has made any.
    pub missing: u64,
    pub has_states: bool,
    /// Bytes of parameters that are in no model, where there are models.
    pub orphaned: u64,
}

/// A process on the device.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct OtherProcess {
    pub pid: u64,
    pub name: String,
    pub bytes: u64,
}

/// What a holder is. The Python package has the same names: `_out_of_memory/kinds.py`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Weights of a model, their gradients, its buffers, states of an optimizer; all of these of many models.
    Parameters,
    Gradients,
    Buffer,
    OptimizerStates,
    Models,
    /// Frames of an exception that is handled now, and of one that is kept.
    Exception,
    KeptException,
    /// Objects that wait for the garbage collector; parameters whose gradients have a graph that leads back to them; functions of
    /// autograd that keep their own result.
    Garbage,
    GradientCycle,
    FunctionCycle,
    Hook,
    /// An autograd graph; one of many forward passes.
    Graph,
    GraphOfMany,
    /// A result of a script's own step.
    Variable,
    /// Tensors that Python knows and nothing names: few, so that locals of the frames that run may hold them, or more than these can.
    Local,
    Unnamed,
    /// What nothing in Python holds.
    Native,
    /// Of another optimizer for the same parameters.
    OtherStates,
    /// What a name of the program keeps.
    Container,
    Attribute,
    Dataset,
    Queue,
    Cache,
    Iterator,
    Closure,
    Generator,
    Coroutine,
    AsyncGenerator,
    /// A name of another version.
    #[default]
    #[serde(other)]
    Other,
}

impl Role {
    /// All by which the program keeps things under a name of its own.
    pub const KEPT: &[Role] = &[
        Role::Models,
        Role::OtherStates,
        Role::Container,
        Role::Attribute,
        Role::Dataset,
        Role::Queue,
        Role::Cache,
        Role::Iterator,
        Role::Closure,
        Role::Generator,
        Role::Coroutine,
        Role::AsyncGenerator,
    ];
    /// Autograd's graphs.
    pub const GRAPHS: &[Role] = &[Role::Graph, Role::GraphOfMany];
    /// What a model and its training have from the first step to the last.
    pub const MODEL: &[Role] =
        &[Role::Parameters, Role::Gradients, Role::Buffer, Role::OptimizerStates, Role::OtherStates, Role::Models];

    /// Whether it is one of some.
    pub fn is_of(self, kinds: &[Role]) -> bool {
        kinds.contains(&self)
    }
}

/// Who holds memory, for people. The Python package writes most of it, the report the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HolderBytes {
    /// Its name: ``list `seen` in train.py:31``.
    #[serde(alias = "name")]
    pub holder: String,
    /// What it is.
    pub kind: Role,
    /// Where it is made, where that is known.
    pub line: Option<String>,
    /// Bytes.
    pub bytes: u64,
    /// Tensors.
    #[serde(alias = "tensors")]
    pub blocks: usize,
    /// The line that allocated most of them.
    pub site: Option<String>,
    /// Bytes that the tensors use of it, where they are views of what is kept.
    pub used: Option<u64>,
    /// Whether it has one tensor for each module, so that it does not grow.
    pub is_bounded: bool,
    /// Whether it has things by a key.
    pub is_mapping: bool,
    /// Whether most was loaded from a file.
    pub is_loaded: bool,
    /// Whether much is models' or optimizers'.
    pub is_models: bool,
    /// Whether it is a graph that ends in no parameter that an optimizer has.
    pub is_untrained: bool,
    /// Whether it is a graph that ends in an input too, by which is differentiated.
    pub is_of_input: bool,
    /// Whether it was filled piece by piece over what was recorded.
    pub is_filled: bool,
    /// Whether no backward pass has run since most of it was made, as far as call stacks tell.
    pub is_pending: bool,
    /// Whether the same calls made more before the last backward pass.
    pub is_repeated: bool,
    /// The class of what is in it, where these are no tensors.
    pub content: String,
    /// The full name of the class that has it as an attribute.
    pub owner: String,
    /// Some of the blocks, the largest first.
    #[serde(skip_serializing)]
    pub addresses: Vec<u64>,
}

impl Facts {
    /// Those of a trace, if there are any for its device.
    pub fn of(trace: &Trace) -> Option<Facts> {
        let facts: Facts = serde_json::from_str(trace.facts.as_deref()?).ok()?;
        (facts.device == trace.device).then_some(facts)
    }

    /// Whether there are optimizers, of which each has states to make and none, and parameters without gradients.
    pub fn is_before_first_step(&self) -> bool {
        let is_new = |one: &OptimizerFacts| one.missing > 0 && !one.has_states;
        let all = self.optimizers.as_deref().unwrap_or_default();
        self.missing_gradients > Some(0) && !all.is_empty() && all.iter().all(is_new)
    }

    /// The holders, each with the line that allocated most of what it holds; last what nothing in Python holds.
    pub fn holders(&self, trace: &Trace, live: u64, sites: &mut Sites<'_>) -> Vec<HolderBytes> {
        let at: HashMap<u64, RequestId> = living(trace).collect();
        let last_backward = last_backward(trace, sites);
        let earlier = trace.requests.iter().filter(|one| one.alloc < last_backward);
        let earlier: HashSet<StackId> = earlier.map(|one| one.stack).collect();
        let mut list: Vec<HolderBytes> = self
            .holders
            .iter()
            .map(|one| {
                let mut by_site: HashMap<std::rc::Rc<str>, u64> = HashMap::new();
                let (mut loaded, mut models, mut new, mut known) = (0u64, 0u64, 0u64, 0u64);
                let mut born: Vec<Time> = Vec::new();
                for id in one.addresses.iter().filter_map(|address| at.get(address)) {
                    let request = trace.request(*id);
                    *by_site.entry(sites.known(request.stack)).or_default() += request.rounded() >> 9;
                    let through = passes(trace, request.stack);
                    loaded += if through.loaded { request.rounded() >> 9 } else { 0 };
                    models += if is_models(trace, request.stack, through) { request.rounded() >> 9 } else { 0 };
                    new += if request.alloc > last_backward { request.rounded() >> 9 } else { 0 };
                    known += if earlier.contains(&request.stack) { request.rounded() >> 9 } else { 0 };
                    born.extend(request.alloc);
                }
                let sum: u64 = by_site.values().sum();
                let is_loaded = loaded * 2 > sum;
                let most = by_site.into_iter().max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
                let site = most.map(|(site, _)| site.to_string()).filter(|site| crate::sites::is_named(site));
                HolderBytes {
                    used: one.used.filter(|used| *used < one.bytes / 2),
                    is_loaded,
                    is_models: models * 4 > sum || one.kind == Role::Models,
                    is_pending: site.is_some() && new * 2 > sum,
                    is_repeated: site.is_some() && known * 2 > sum,
                    is_filled: !one.is_bounded && is_filled(born, trace.end()),
                    site,
                    addresses: Vec::new(),
                    ..one.clone()
                }
            })
            .collect();
        let held = list.iter().map(|one| one.bytes).fold(0, u64::saturating_add);
        let rest = live.saturating_sub(held);
        if !list.is_empty() && rest > live / 50 {
            list.push(HolderBytes {
                holder: "no Python object: what an operation that runs needs, or a library keeps".into(),
                kind: Role::Native,
                bytes: rest,
                is_bounded: true,
                ..HolderBytes::default()
            });
        }
        list.sort_by_key(|one| std::cmp::Reverse(one.bytes));
        list
    }
}

/// When a backward pass asked for memory last: what was recorded without a stack, among what has one, is of a thread without Python.
pub(crate) fn last_backward(trace: &Trace, sites: &mut Sites<'_>) -> Option<Time> {
    let backward = |request: &&Request| matches!(&*sites.known(request.stack), BACKWARD_PASS | UNKNOWN);
    trace.requests.iter().filter(backward).filter_map(|request| request.alloc).max()
}

/// Whether a call stack builds, copies or trains a model.
fn is_models(trace: &Trace, stack: StackId, through: Passes) -> bool {
    let is_copy = |file: &str| file.ends_with("/copy.py");
    through.optimizer || through.built || trace.stacks.get(stack).iter().any(|frame| is_copy(trace.string(frame.file)))
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
