//! PyTorch's operations, observed in a dry run, so that small integers are computed for real.
//!
//! PyTorch calls whoever asks for it before and after each operation (`at::addGlobalCallback`, made for profilers): the operations, their
//! order and what they allocate stay as they are. Before an operation of which all inputs are small and known, Python computes it on the
//! host (`python/stalloc/_dry_run/known_values.py`); after it, the stand-in CUDA is told the values of its outputs. After any other
//! operation that launched a kernel it is told to forget what was written.
//!
//! There is no C interface for the callbacks: `layout.rs` says how their arguments are found. x86-64 alone: elsewhere the pointer to
//! a result that C++ wants is passed where Rust cannot reach it, and nothing is observed.

mod calls;
mod flops;
mod host_memory;
mod kind;
mod layout;
mod operation;
mod sparse;
mod stand_in;
mod work;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use flops::Product;
use layout::{Probe, TensorLayout, find_inputs, find_outputs, tag, word};
use operation::{Duty, Operation, Running};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use stalloc_runtime::contained;
use work::WorkClass;

/// Inputs of the operation that the layout is found with: `scatter_reduce_(self, dim, index, src, reduce, include_self)`.
const PROBED_INPUTS: usize = 6;

const ADD: &str = "_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE";
const REMOVE: &str = "_ZN2at14removeCallbackEm";
const NAME: &str = "_ZNK2at14RecordFunction4nameEv";
const OPERATOR: &str = "_ZNK2at14RecordFunction13operator_nameEv";
const ENABLE: &str = "_ZN2at20enableRecordFunctionEb";
const KEPT: &str = "_ZN3c1020ThreadLocalDebugInfo7currentEv";
const KEEP: &str = "_ZN3c1020ThreadLocalDebugInfo22_forceCurrentDebugInfoESt10shared_ptrIS0_E";

/// `at::RecordFunctionCallback`.
#[repr(C)]
struct Callback {
    start: extern "C" fn(*mut usize, *const c_void) -> *mut usize,
    end: extern "C" fn(*const c_void, *const c_void),
    /// How often it is called: always.
    probability: f64,
    /// Of the ten scopes only the first, functions.
    scopes: [bool; 10],
    needs_inputs: bool,
    needs_outputs: bool,
    needs_ids: bool,
}

/// Places that are not the tensors'.
#[derive(Clone, Copy)]
struct ObserverLayout {
    tensor: TensorLayout,
    inputs: usize,
    outputs: usize,
    tags: Tags,
    /// Keys that a plain tensor of the device may have, and those of them that only such a tensor has.
    device: (usize, usize),
    /// The same of the host's.
    host: (usize, usize),
}

/// Tags that differ between versions.
#[derive(Clone, Copy)]
struct Tags {
    int: u32,
    bool: u32,
    string: u32,
    list: u32,
}

/// What the callbacks found while the layout was looked for.
#[derive(Default)]
struct Sightings {
    tensor: usize,
    inputs: Option<(usize, Tags)>,
    outputs: Option<usize>,
}

struct Functions {
    name: extern "C" fn(*const c_void) -> *const c_char,
    operator: extern "C" fn(*mut [usize; 16], *const c_void) -> *mut [usize; 16],
    /// Whether operations of this thread are told to whoever asks for them.
    enable: extern "C" fn(bool),
    /// What a profiler of the program's keeps for this thread, a `std::shared_ptr`: gives it, and takes another.
    kept: extern "C" fn(*mut [usize; 2]) -> *mut [usize; 2],
    keep: extern "C" fn(*mut [usize; 2]),
    classify: Py<PyAny>,
    compute: Py<PyAny>,
}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
static LAYOUT: OnceLock<ObserverLayout> = OnceLock::new();
/// Answers reads from the device.
static ANSWER: OnceLock<Py<PyAny>> = OnceLock::new();
static FOUND: Mutex<Option<Sightings>> = Mutex::new(None);

thread_local! {
    /// Operations that run on this thread, innermost last.
    static RUNNING: RefCell<Vec<Option<Running>>> = const { RefCell::new(Vec::new()) };
    /// Whether the observer itself runs.
    static IS_UNOBSERVED: Cell<bool> = const { Cell::new(false) };
    /// Operations by the address of their name, which is unique.
    static OPERATIONS: RefCell<HashMap<usize, Option<&'static Operation>>> = RefCell::default();
}

extern "C" fn start(context: *mut usize, function: *const c_void) -> *mut usize {
    // SAFETY: the place of the result, a `std::unique_ptr`, which is to be null.
    unsafe { context.write(0) };
    // What cannot be looked at has a place too: its end takes it away.
    contained("operation_start", || started(function), || RUNNING.with_borrow_mut(|all| all.push(None)));
    context
}

extern "C" fn end(function: *const c_void, _context: *const c_void) {
    contained("operation_end", || ended(function), || ());
}

/// Whether operations of this thread are observed: none at the thread's very end.
fn is_observed() -> bool {
    RUNNING.try_with(|_| ()).is_ok() && OPERATIONS.try_with(|_| ()).is_ok()
}

fn started(function: *const c_void) {
    if !is_observed() {
        return;
    }
    let Some(layout) = LAYOUT.get() else { return probe_start(function.addr()) };
    let Some(operation) = operation_of(function) else {
        // No operation, but a stretch of PyTorch's own code that has a name: what it launches belongs to the operation around it.
        RUNNING.with_borrow_mut(|all| all.push(None));
        return;
    };
    // SAFETY: an operation is starting: its inputs are where they were found before.
    let running = unsafe {
        let object = function.expose_provenance();
        let inputs = (word(object, layout.inputs), word(object, layout.inputs + 1));
        Running::start(operation, inputs, layout)
    };
    stand_in::operation_begins();
    RUNNING.with_borrow_mut(|all| {
        all.iter_mut().rev().flatten().next().into_iter().for_each(|around| around.has_parts = true);
        all.push(Some(running));
    });
}

fn ended(function: *const c_void) {
    if !is_observed() {
        return;
    }
    let Some(layout) = LAYOUT.get() else { return probe_end(function.addr()) };
    let Some(Some(running)) = RUNNING.with_borrow_mut(Vec::pop) else { return };
    let has_launched = stand_in::operation_ends();
    // SAFETY: an operation is ending: its outputs are where they were found before.
    unsafe {
        let outputs = layout::vector(function.expose_provenance(), layout.outputs);
        RUNNING.with_borrow_mut(|all| {
            all.last_mut().into_iter().flatten().for_each(|around| around.has_part(outputs, layout));
        });
        if has_launched {
            running.tell_work(outputs, layout);
        } else {
            running.tell_host_work(outputs, layout);
        }
        if has_launched || running.makes() {
            running.end(outputs, layout);
        }
    }
}

fn probe_start(function: usize) {
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(found) = found.as_mut().filter(|found| found.inputs.is_none()) else { return };
    // SAFETY: the operation is starting, with the tensor as its first input if it is the one.
    unsafe {
        if let Some(at) = find_inputs(function, PROBED_INPUTS, found.tensor) {
            let value = |index: usize| tag(word(function, at) + index * layout::VALUE);
            let tags = Tags { int: value(1), string: value(4), bool: value(5), list: value(4) + 2 };
            found.inputs = Some((at, tags));
        }
    }
}

fn probe_end(function: usize) {
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = found.as_mut().filter(|found| found.inputs.is_some() && found.outputs.is_none()) {
        // SAFETY: the operation is ending.
        found.outputs = unsafe { find_outputs(function, found.tensor) };
    }
}

/// The operation that is starting.
fn operation_of(function: *const c_void) -> Option<&'static Operation> {
    let functions = FUNCTIONS.get()?;
    let name = (functions.name)(function);
    if let Some(operation) = OPERATIONS.with_borrow(|known| known.get(&name.addr()).copied()) {
        return operation;
    }
    // SAFETY: the name of an operation is a string that lives as long as it.
    let text = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    let operation = overload(functions, function).map(|overload| {
        let product = Product::of(&text);
        let class = product.map_or_else(|| WorkClass::of(&text), Product::class);
        let ask = |python: Python<'_>| -> PyResult<(u32, u64, u64)> {
            functions.classify.call1(python, (name.addr(), &text, &overload))?.extract(python)
        };
        let (kind, writes, fresh) = calls::call(ask).unwrap_or_default();
        // Kept for ever, once for each operation that is used: a few kilobytes.
        &*Box::leak(Box::new(Operation {
            key: name.addr(),
            kind: Duty::from_number(kind),
            writes,
            fresh,
            product,
            class,
        }))
    });
    OPERATIONS.with_borrow_mut(|known| known.insert(name.addr(), operation));
    operation
}

/// The overload's name, out of a `std::optional<c10::OperatorName>`: two strings, of the old kind or of today's.
fn overload(functions: &Functions, function: *const c_void) -> Option<String> {
    let mut place = [0_usize; 16];
    (functions.operator)(&raw mut place, function);
    // Today's strings: a pointer, a length, 16 bytes more; the strings of old are a pointer alone, behind them their lengths.
    // Their memory is not given back, once for each operation.
    let (text, length) = if place[1] < 1 << 16 {
        (place[4], place[5])
    } else {
        // SAFETY: a string of old has its length three words before its characters.
        (place[1], unsafe { word(place[1].checked_sub(24)?, 0) })
    };
    if place[0] == 0 || text == 0 || length > 256 {
        return None; // the optional is empty
    }
    // SAFETY: so many characters are there; those of a short string are in `place`.
    let bytes = unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(text), length) };
    Some(String::from_utf8_lossy(bytes).into_owned())
}

/// Runs `what`, which neither the observer nor a profiler sees.
fn unobserved<T>(what: impl FnOnce() -> T) -> T {
    // The handler of a signal may run in the midst of it, and ask again.
    let is_first = !IS_UNOBSERVED.replace(true);
    let functions = FUNCTIONS.get().filter(|_| is_first);
    let (mut kept, mut nothing) = ([0; 2], [0; 2]);
    if let Some(functions) = functions {
        (functions.enable)(false);
        (functions.kept)(&raw mut kept);
        (functions.keep)(&raw mut nothing);
    }
    let result = what();
    if let Some(functions) = functions {
        (functions.keep)(&raw mut kept); // takes it away from here
        (functions.enable)(true);
    }
    IS_UNOBSERVED.set(!is_first);
    result
}

/// A tensor that Python made to find the layout with: address, sizes, strides, offset, type, keys, address and bytes of the storage.
type Probed = (usize, [usize; 3], [usize; 3], usize, usize, usize, usize, usize);
/// Keys that a plain tensor may have, and those that only it has.
type Keys = (usize, usize);

/// Observe operations from now on. `call` is called once, with the tensor `called`, whose address is given, as
/// `scatter_reduce_`'s first argument.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "a list of what Python knows")]
pub fn observe_operations(
    python: Python<'_>,
    libraries: std::path::PathBuf,
    probes: Vec<Probed>,
    called: usize,
    call: &Bound<'_, PyAny>,
    device: Keys,
    host: Keys,
    classify: Py<PyAny>,
    compute: Py<PyAny>,
) -> PyResult<()> {
    let refused = |why: &str| PyRuntimeError::new_err(why.to_owned());
    if cfg!(not(target_arch = "x86_64")) {
        return Err(refused("not on this processor"));
    }
    stand_in::find().map_err(|why| refused(&why))?;
    let mut tensor = None;
    for (address, sizes, strides, offset, kind, keys, data, bytes) in probes {
        // SAFETY: Python gave the address of a tensor that it holds.
        let found =
            unsafe { TensorLayout::find(&Probe { tensor: address, sizes, strides, offset, kind, keys, data, bytes }) };
        if found.is_none() || tensor.is_some_and(|earlier| Some(earlier) != found) {
            return Err(refused("this PyTorch's tensors have an unknown layout"));
        }
        tensor = found;
    }
    let tensor = tensor.ok_or_else(|| refused("no tensor to find the layout with"))?;
    let library = crate::tracker::open(&Path::new(&libraries).join("libtorch_cpu.so")).map_err(|why| refused(&why))?;
    let symbol = |name| crate::tracker::symbol(&library, name).map_err(|why| refused(&why));
    let (add, remove, name) = (symbol(ADD)?, symbol(REMOVE)?, symbol(NAME)?);
    let (operator, enable, kept, keep) = (symbol(OPERATOR)?, symbol(ENABLE)?, symbol(KEPT)?, symbol(KEEP)?);
    // SAFETY: the symbols are these C++ functions; a class that is trivial is passed by value on the stack, as in C.
    let (add, remove, name, operator, enable, kept, keep) = unsafe {
        (
            std::mem::transmute::<*const c_void, extern "C" fn(Callback) -> u64>(add),
            std::mem::transmute::<*const c_void, extern "C" fn(u64)>(remove),
            std::mem::transmute::<*const c_void, extern "C" fn(*const c_void) -> *const c_char>(name),
            std::mem::transmute::<*const c_void, extern "C" fn(*mut [usize; 16], *const c_void) -> *mut [usize; 16]>(
                operator,
            ),
            std::mem::transmute::<*const c_void, extern "C" fn(bool)>(enable),
            std::mem::transmute::<*const c_void, extern "C" fn(*mut [usize; 2]) -> *mut [usize; 2]>(kept),
            std::mem::transmute::<*const c_void, extern "C" fn(*mut [usize; 2])>(keep),
        )
    };
    *FOUND.lock().unwrap_or_else(PoisonError::into_inner) = Some(Sightings { tensor: called, ..Sightings::default() });
    let mut scopes = [false; 10];
    scopes[0] = true;
    let handle = add(Callback {
        start,
        end,
        probability: 1.0,
        scopes,
        needs_inputs: true,
        needs_outputs: true,
        needs_ids: false,
    });
    let done = call.call0();
    let found = FOUND.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default();
    let (Some((inputs, tags)), Some(outputs), Ok(_)) = (found.inputs, found.outputs, &done) else {
        remove(handle);
        done?;
        return Err(refused("this PyTorch's calls have an unknown layout"));
    };
    _ = FUNCTIONS.set(Functions { name, operator, enable, kept, keep, classify, compute });
    _ = LAYOUT.set(ObserverLayout { tensor, inputs, outputs, tags, device, host });
    _ = python;
    Ok(())
}

/// Floating-point operations of this process so far; none where operations are not observed.
#[pyfunction]
pub fn operations_counted() -> Option<u64> {
    LAYOUT.get().map(|_| flops::total())
}

/// What the bytes at an address of a device are that are to be computed later.
#[pyfunction]
pub fn computed_later(address: usize, bytes: usize) -> Option<(u64, u64)> {
    stand_in::later(address, bytes)
}

/// Has `answer` called at each copy from the device, with where the bytes go, how many, where from, and the stand-in's flags.
#[pyfunction]
pub fn answer_reads(answer: Py<PyAny>) -> PyResult<()> {
    if ANSWER.set(answer).is_ok() {
        stand_in::on_host_read(read).map_err(PyRuntimeError::new_err)?;
    }
    Ok(())
}

extern "C" fn read(
    _user: usize,
    target: usize,
    bytes: u64,
    source: u64,
    _device: c_int,
    _stream: u64,
    flags: c_int,
) -> c_int {
    let ask = || {
        let answer = ANSWER.get()?;
        calls::call(|python| answer.call1(python, (target, bytes, source, flags))?.extract::<bool>(python))
    };
    contained("host_read", ask, || None).unwrap_or(false).into()
}

/// What an operation that is running on this thread would read in so many bytes: the number of elements that it finds, and whether
/// that is computed, and follows from what was drawn; none if no such operation is running.
#[pyfunction]
pub fn operation_reads(bytes: usize) -> Option<(usize, bool, bool)> {
    let (number, source) =
        RUNNING.with_borrow(|all| all.iter().rev().flatten().find_map(|running| running.read(bytes)))?;
    Some((number, source.is_some(), source == Some(stand_in::ByteOrigin::Drawn)))
}

/// The type of the numbers that the innermost operation on this thread reads from the device; none if it reads no tensor.
#[pyfunction]
pub fn numbers_read() -> Option<u16> {
    RUNNING.with_borrow(|all| all.iter().rev().flatten().next()?.numbers())
}

/// Whether the innermost operation on this thread reads what it has just computed, and no values of the program.
#[pyfunction]
pub fn operation_reads_its_own() -> bool {
    RUNNING.with_borrow(|all| all.iter().rev().flatten().next().is_some_and(Running::reads_its_own))
}
