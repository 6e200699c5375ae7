//! The installed cuDNN, asked in a process of its own (`stalloc-cudnn`), which starts at the first question.
//!
//! What a descriptor is decides what is answered: so an answer is kept under the content of the descriptor, the card and the version,
//! within the process and for later ones. Only a question that was never answered reaches the library.

use super::{
    SUCCESS,
    answers::AnswerFile,
    backend::DESCRIPTOR,
    descriptor::{
        ENGINE, HEURISTIC, HEURISTIC_GRAPH, HEURISTIC_MODE, HEURISTIC_RESULTS, LIBRARY_HANDLE, Node, Origin, PLAN,
        PLAN_CONFIGURATION, lock, take_dropped,
    },
    version,
};
use crate::{
    config::config,
    execution::{self, cuda_major},
    loaded, log,
};
use serde_json::json;
use stalloc_cudnn::{Call, Client, FIRST_VERSION, Reply};
use std::{
    ffi::{CStr, OsStr, c_int},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// `CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR` and its attribute of text.
const DEVICE: c_int = 38;
const DEVICE_TEXT: c_int = 2702;
const CHARACTER: c_int = 24;

/// Forward, filter's and data's gradient of a convolution.
const CONVOLUTIONS: std::ops::RangeInclusive<c_int> = 10..=12;

/// Heuristics that programs ask before others: a refusal of their last engine is not the end.
const INSTANT: c_int = 0;

/// Descriptors below others: an attribute of an operation of a graph of a plan; real ones are four deep.
const DEEPEST: u32 = 32;

/// An answer of the installed library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CudnnAnswer {
    pub status: c_int,
    pub count: usize,
    pub bytes: Vec<u8>,
}

struct Installed {
    answers: AnswerFile,
    /// The process; none until a question is new, and after its first failure.
    client: Option<Client>,
    has_failed: bool,
    /// Descriptor of the card, in the process.
    device: u64,
}

enum LibraryState {
    Unasked,
    Absent,
    Present(Box<Installed>),
}

static STATE: Mutex<(LibraryState, u32)> = Mutex::new((LibraryState::Unasked, 0));
static STARTED: AtomicU64 = AtomicU64::new(0);
static ANSWERED: AtomicU64 = AtomicU64::new(0);
static IMITATED: AtomicU64 = AtomicU64::new(0);
static WHY: Mutex<String> = Mutex::new(String::new());

/// Who answered: how many questions the installed library, how many the imitation, and why.
pub fn tally() -> serde_json::Value {
    json!({
        "version": version(),
        "answered": ANSWERED.load(Relaxed),
        "imitated": IMITATED.load(Relaxed),
        "why": *WHY.lock().unwrap_or_else(PoisonError::into_inner),
    })
}

/// A plan or the heuristics are imitated from here on.
fn imitate(why: &str) {
    IMITATED.fetch_add(1, Relaxed);
    let mut kept = WHY.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.is_empty() {
        why.clone_into(&mut kept);
        log::note(&format!("cuDNN is imitated: {why}"));
    }
}

fn state() -> MutexGuard<'static, (LibraryState, u32)> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks, if there is somebody to ask.
fn with<T>(ask: impl FnOnce(&mut Installed) -> Option<T>) -> Option<T> {
    let mut guard = state();
    let (state, owner) = &mut *guard;
    // A forked process shares the socket with its parent: it asks nobody.
    if *owner != std::process::id() {
        *state = match (std::mem::replace(state, LibraryState::Absent), *owner) {
            (LibraryState::Unasked, 0) => LibraryState::Unasked,
            (LibraryState::Present(mut installed), _) => {
                std::mem::forget(installed.client.take());
                LibraryState::Absent
            }
            _ => LibraryState::Absent,
        };
        *owner = std::process::id();
    }
    if matches!(state, LibraryState::Unasked) {
        *state = match available() {
            Ok(()) => {
                let card = card();
                let answers = AnswerFile::open(version(), &card);
                LibraryState::Present(Box::new(Installed { answers, client: None, has_failed: false, device: 0 }))
            }
            Err(why) => {
                imitate(why);
                LibraryState::Absent
            }
        };
    }
    match state {
        LibraryState::Present(installed) => ask(installed),
        _ => None,
    }
}

/// Whether the installed version answers with no device.
fn available() -> Result<(), &'static str> {
    if config().imitates_cudnn {
        return Err("STALLOC_DRYRUN_CUDNN=imitated");
    }
    if version() < FIRST_VERSION {
        return Err("it answers with no GPU from 9.8 on");
    }
    // The last builds for CUDA 13 know no card before 7.5; what they say of one means nothing.
    if config().gpu.capability < (7, 5) && cuda_major() >= 13 {
        return Err("this version does not know the card");
    }
    if folder().is_none() { Err("libcudnn_graph.so.9 was not found") } else { Ok(()) }
}

/// Where the installed libraries lie.
fn folder() -> Option<PathBuf> {
    let path = loaded::path("libcudnn")?;
    let folder = Path::new(OsStr::from_bytes(path.as_bytes())).parent()?.to_owned();
    folder.join("libcudnn_graph.so.9").is_file().then_some(folder)
}

/// The command that serves: it lies next to this library, or where cargo leaves it.
fn server() -> Option<PathBuf> {
    // SAFETY: fills the structure in for an address of this library; the name is the loader's and stays.
    let name = unsafe {
        let mut about: libc::Dl_info = std::mem::zeroed();
        let address: *const () = (folder as fn() -> Option<PathBuf>) as *const ();
        if libc::dladdr(address.cast(), &raw mut about) == 0 || about.dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(about.dli_fname)
    };
    let library = std::fs::canonicalize(OsStr::from_bytes(name.to_bytes())).ok()?;
    let folder = library.parent()?;
    ["stalloc", "../stalloc", "../bin/stalloc"].map(|place| folder.join(place)).into_iter().find(|path| path.is_file())
}

/// The card as cuDNN describes one: the fields that it says it misses, with what the preset has.
fn card() -> String {
    let gpu = &config().gpu;
    let kept = if gpu.capability.0 >= 8 { 1024 } else { 0 };
    json!({
        "deviceName": gpu.product, "deviceVer": gpu.capability.0 * 100 + gpu.capability.1 * 10, "driverVer": 13_000, "cudaDeviceId": 0,
        "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1, "warpSize": 32,
        "multiProcessorCount": gpu.multiprocessors, "smCountOrigin": 0,
        "maxGridSize": [0x7fff_ffff, 65_535, 65_535], "maxBlockSize": [1024, 1024, 64], "maxThreadsPerBlock": 1024,
        "maxThreadsPerSM": gpu.threads_per_multiprocessor, "maxCtasPerSM": gpu.blocks_per_multiprocessor,
        "regsPerBlock": 65_536, "maxRegistersPerSM": 65_536,
        "maxSharedMemoryPerBlock": 48 << 10, "maxSharedMemoryPerBlockOptin": gpu.shared_per_block,
        "oversizedSharedMemoryPerBlock": 0, "reservedSharedMemoryPerBlock": kept,
        "totalGlobalMem": gpu.total, "l2CacheSize": gpu.l2, "smClockRateKHz": gpu.clock, "memClockRateKHz": gpu.memory_clock,
    })
    .to_string()
}

impl Installed {
    /// What is known under a key, else what `ask` finds out.
    fn answer(&mut self, key: u64, ask: impl FnOnce(&mut Self) -> io::Result<Reply>) -> Option<CudnnAnswer> {
        if let Some(known) = self.answers.get(key) {
            ANSWERED.fetch_add(1, Relaxed);
            return Some(known);
        }
        if self.has_failed {
            return None;
        }
        match self.start().and_then(|()| ask(self)) {
            Ok(reply) => {
                let count = usize::try_from(reply.count).unwrap_or(0);
                let answer = CudnnAnswer { status: reply.status, count, bytes: reply.bytes };
                self.answers.keep(key, &answer);
                ANSWERED.fetch_add(1, Relaxed);
                Some(answer)
            }
            Err(error) => {
                imitate(&format!("the installed library did not answer ({error})"));
                self.has_failed = true;
                self.client = None;
                None
            }
        }
    }

    /// Starts the process, and describes the card to it.
    fn start(&mut self) -> io::Result<()> {
        if self.client.is_some() {
            for (process, descriptor) in take_dropped() {
                if process == STARTED.load(Relaxed) {
                    self.call(&Call::Destroy { descriptor })?;
                }
            }
            return Ok(());
        }
        let (server, folder) = server().zip(folder()).ok_or(io::ErrorKind::NotFound)?;
        self.client = Some(Client::start(&server, &folder, search())?);
        STARTED.fetch_add(1, Relaxed);
        self.device = self.create(DEVICE)?;
        let bytes = card().into_bytes();
        self.set(self.device, DEVICE_TEXT, CHARACTER, bytes)?;
        self.finalized(self.device)
    }

    fn call(&mut self, call: &Call) -> io::Result<Reply> {
        self.client.as_mut().ok_or(io::ErrorKind::NotConnected)?.call(call)
    }

    fn create(&mut self, kind: c_int) -> io::Result<u64> {
        let reply = self.call(&Call::Create { kind })?;
        let bytes: Option<[u8; 8]> = reply.bytes.as_slice().try_into().ok();
        match (reply.status, bytes.map(u64::from_ne_bytes)) {
            (SUCCESS, Some(descriptor)) if descriptor != 0 => Ok(descriptor),
            (status, _) => Err(refused("create", status)),
        }
    }

    fn set(&mut self, descriptor: u64, name: c_int, kind: c_int, bytes: Vec<u8>) -> io::Result<()> {
        let count = i64::try_from(bytes.len() / super::descriptor::element(kind)).unwrap_or(0);
        match self.call(&Call::Set { descriptor, name, kind, count, bytes })?.status {
            SUCCESS => Ok(()),
            status => Err(refused("set", status)),
        }
    }

    fn finalized(&mut self, descriptor: u64) -> io::Result<()> {
        match self.call(&Call::Finalize { descriptor })?.status {
            SUCCESS => Ok(()),
            status => Err(refused("finalize", status)),
        }
    }

    /// The process's own descriptor for `node`, with all below it. The library finalizes what this one is made of, and it itself if it came
    /// from an answer or if `finalizes`.
    fn own(&mut self, node: &Node, finalizes: bool, depth: u32) -> io::Result<u64> {
        let process = STARTED.load(Relaxed);
        let (kind, origin, attributes) = {
            let descriptor = lock(node);
            match descriptor.installed {
                Some((of, own)) if of == process => return Ok(own),
                _ => (descriptor.kind, descriptor.origin.clone(), descriptor.attributes.clone()),
            }
        };
        if depth == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let own = self.create(kind)?;
        lock(node).installed = Some((process, own));
        if let Some(origin) = origin {
            // Its place in the list is all that tells which one it is.
            let parent = self.own(&origin.parent, true, depth - 1)?;
            let mut list = vec![own];
            for _ in 0..origin.index {
                list.push(self.create(kind)?);
            }
            let last = list.len() - 1;
            list.swap(0, last);
            let reply = self.get(parent, origin.name, origin.asked.min(list.len()), &list)?;
            for passed in &list[..last] {
                self.call(&Call::Destroy { descriptor: *passed })?;
            }
            return if reply.status == SUCCESS { Ok(own) } else { Err(refused("get", reply.status)) };
        }
        for (name, attribute) in attributes {
            let bytes = match attribute.kind {
                LIBRARY_HANDLE => continue,
                DESCRIPTOR => {
                    let mut owned = Vec::new();
                    for child in &attribute.children {
                        owned.extend(self.own(child, true, depth - 1)?.to_ne_bytes());
                    }
                    owned
                }
                _ => attribute.bytes,
            };
            self.set(own, name, attribute.kind, bytes)?;
        }
        let device = match kind {
            HEURISTIC => Some(204),
            ENGINE => Some(1307),
            PLAN => Some(407),
            _ => None,
        };
        if let Some(name) = device {
            let device = self.device.to_ne_bytes().to_vec();
            self.set(own, name, DESCRIPTOR, device)?;
        }
        if finalizes {
            self.finalized(own)?;
        }
        Ok(own)
    }

    fn get(&mut self, descriptor: u64, name: c_int, count: usize, list: &[u64]) -> io::Result<Reply> {
        let bytes = list.iter().flat_map(|own| own.to_ne_bytes()).collect();
        let count = i64::try_from(count).unwrap_or(0);
        self.call(&Call::Get { descriptor, name, kind: DESCRIPTOR, count, bytes })
    }
}

fn refused(what: &str, status: c_int) -> io::Error {
    io::Error::other(format!("{what}: {status}"))
}

/// The folders that the loader searches, without the stand-in's own.
fn search() -> Option<std::ffi::OsString> {
    let own = std::env::var_os("TRITON_LIBCUDA_PATH").map(PathBuf::from);
    let all = std::env::var_os("LD_LIBRARY_PATH")?;
    std::env::join_paths(std::env::split_paths(&all).filter(|path| Some(path) != own.as_ref())).ok()
}

/// What a descriptor is, in one number; none if part of it is only imitated.
fn key(node: &Node, depth: u32) -> Option<u64> {
    let descriptor = lock(node);
    if depth == 0 || descriptor.is_imitated {
        return None;
    }
    let mut text = Vec::new();
    let mut add = |number: u64| text.extend(number.to_ne_bytes());
    add(descriptor.kind.cast_unsigned().into());
    if let Some(Origin { parent, name, index, .. }) = &descriptor.origin {
        add(key(parent, depth - 1)?);
        add(name.cast_unsigned().into());
        add(*index as u64);
        return Some(stalloc_common::hash(&text));
    }
    for (name, attribute) in descriptor.attributes.iter().filter(|(_, attribute)| attribute.kind != LIBRARY_HANDLE) {
        add(name.cast_unsigned().into());
        add(attribute.kind.cast_unsigned().into());
        match attribute.kind {
            DESCRIPTOR => {
                for child in &attribute.children {
                    add(key(child, depth - 1)?);
                }
            }
            _ => add(stalloc_common::hash(&attribute.bytes)),
        }
    }
    Some(stalloc_common::hash(&text))
}

/// Whether an operation graph is of convolutions alone. What else cuDNN runs (attention above all) needs a card to choose by, and its
/// refusal would end the program.
fn is_of_convolutions(graph: &Node) -> bool {
    let operations = lock(graph).operations();
    let mut kinds = operations.into_iter().map(|operation| lock(&operation).kind).peekable();
    kinds.peek().is_some() && kinds.all(|kind| CONVOLUTIONS.contains(&kind))
}

/// The time that the host takes for operations of new sizes: a program asks the heuristics then, and keeps what they say.
pub fn spend(node: &Node) {
    let kind = lock(node).kind;
    let graph = if kind == HEURISTIC { lock(node).child(HEURISTIC_GRAPH) } else { None };
    if let Some(graph) = graph {
        execution::spend(if is_of_convolutions(&graph) { execution::NEW_CONVOLUTION } else { execution::NEW_GRAPH });
    }
}

/// Finalizes heuristics and plans, which is where the library says no; the status, or none where it is imitated. What else a program
/// makes is finalized when one of these needs it.
pub fn finalize(node: &Node) -> Option<CudnnAnswer> {
    let kind = lock(node).kind;
    if ![HEURISTIC, PLAN].contains(&kind) {
        return None;
    }
    let graph = if kind == HEURISTIC { lock(node).child(HEURISTIC_GRAPH) } else { None };
    if graph.is_some_and(|graph| !is_of_convolutions(&graph)) {
        lock(node).is_imitated = true;
        return None;
    }
    let answer = key(node, DEEPEST).and_then(|key| {
        with(|installed| {
            installed.answer(stalloc_common::hash(&[key.to_ne_bytes(), *b"finalize"].concat()), |installed| {
                let own = installed.own(node, false, DEEPEST)?;
                installed.call(&Call::Finalize { descriptor: own })
            })
        })
    });
    let is_last =
        || lock(node).child(PLAN_CONFIGURATION).is_some_and(|configuration| lock(&configuration).is_last_resort);
    match answer {
        Some(answer) if answer.status == SUCCESS => return Some(answer),
        // The program tries the next engine.
        Some(answer) if kind == PLAN && !is_last() => return Some(answer),
        Some(answer) => imitate(&format!("the installed library refused an operation ({})", answer.status)),
        None => {}
    }
    lock(node).is_imitated = true;
    None
}

/// An attribute that the library answers; none where it is imitated. Descriptors of the program take the answer's elements.
pub fn get(node: &Node, name: c_int, kind: c_int, asked: usize, into: &[Node]) -> Option<CudnnAnswer> {
    let answer = ask(node, name, kind, asked, into);
    if answer.is_none() && kind == DESCRIPTOR {
        // What comes of an imitation is one: the library knows nothing of it.
        for (index, place) in into.iter().enumerate() {
            let mut place = lock(place);
            place.is_imitated = true;
            place.origin = Some(Origin { parent: node.clone(), name, index, asked });
        }
    }
    answer
}

fn ask(node: &Node, name: c_int, kind: c_int, asked: usize, into: &[Node]) -> Option<CudnnAnswer> {
    let key = key(node, DEEPEST)?;
    let text =
        [key, name.cast_unsigned().into(), kind.cast_unsigned().into(), asked as u64].map(u64::to_ne_bytes).concat();
    let answer = with(|installed| {
        installed.answer(stalloc_common::hash(&text), |installed| {
            let own = installed.own(node, true, DEEPEST)?;
            if kind == DESCRIPTOR {
                let mut list = Vec::new();
                for place in into.iter().take(asked) {
                    let kind = lock(place).kind;
                    list.push(installed.create(kind)?);
                }
                let reply = installed.get(own, name, list.len(), &list)?;
                for (place, own) in into.iter().zip(&list) {
                    lock(place).installed = Some((STARTED.load(Relaxed), *own));
                }
                return Ok(Reply { bytes: Vec::new(), ..reply });
            }
            let bytes = vec![0; asked * super::descriptor::element(kind)];
            let count = i64::try_from(asked).unwrap_or(0);
            installed.call(&Call::Get { descriptor: own, name, kind, count, bytes })
        })
    })?;
    if name == HEURISTIC_RESULTS && (answer.status != SUCCESS || answer.count == 0) {
        lock(node).is_imitated = true;
        imitate("the installed library has no engine for an operation");
        return None;
    }
    if kind == DESCRIPTOR && answer.status == SUCCESS {
        let mode = lock(node).number(HEURISTIC_MODE);
        let given = answer.count.min(into.len());
        for (index, place) in into.iter().take(given).enumerate() {
            let mut place = lock(place);
            place.origin = Some(Origin { parent: node.clone(), name, index, asked });
            place.is_last_resort = name == HEURISTIC_RESULTS && mode != Some(INSTANT) && index + 1 == given;
        }
    }
    Some(answer)
}
