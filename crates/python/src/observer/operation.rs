//! One operation, from its start to its end.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use super::flops::{self, Product};
pub use super::kind::Duty;
use super::layout::{DOUBLE, Located, TENSOR, VALUE, View, bytes_of, is_float, tag, word};
use super::stand_in::ByteOrigin;
use super::work::{Traffic, WorkClass};
use super::{FUNCTIONS, ObserverLayout, calls, host_memory, sparse, stand_in};

/// Bytes of the largest tensor that is read, as the stand-in keeps them; what is computed of several may be larger, and is computed when it
/// is asked for (`_dry_run/later.py`).
const MOST_BYTES: usize = 32 << 20;
/// Elements of the largest tensor of fractions that is read.
const MOST_FRACTIONS: usize = 1 << 16;
/// Places that one output may be written to in pieces; more are forgotten.
const MOST_PIECES: usize = 1 << 16;

/// Bits of a tensor's dispatch keys that say which kinds of device it is of.
const DEVICES: usize = 0xffff;

/// What is known of an operation.
pub struct Operation {
    /// The address of its name.
    pub key: usize,
    /// What to do for it.
    pub kind: Duty,
    /// Bits of the inputs that it writes to.
    pub writes: u64,
    /// Bits of the inputs that it writes to and does not read.
    pub fresh: u64,
    /// What it multiplies.
    pub product: Option<Product>,
    /// How its time follows from what it does.
    pub class: WorkClass,
}

/// An operation between its begin and end: results so far, inputs written, floating-point operations, bytes moved.
pub struct Running {
    operation: &'static Operation,
    /// Type, sizes and bytes of each output, where they were computed, and from what.
    results: Option<(Computed, ByteOrigin)>,
    /// The inputs that it writes to.
    written: Vec<View>,
    /// Elements of the first input.
    numel: usize,
    /// The type of the numbers of the device that it reads or copies.
    numbers: Option<u16>,
    /// Floating-point operations of its product, and the type of its numbers.
    flops: (u64, u16),
    /// Per cent of them that takes time.
    weight: u64,
    class: WorkClass,
    traffic: Traffic,
    /// Whether it is made of other operations.
    pub has_parts: bool,
    /// The places of a sparse tensor's elements, a column each.
    places: Option<View>,
}

enum Operand {
    None,
    /// A tensor and what it holds; nothing: that does not matter.
    Tensor(View, Option<Content>),
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    List(Vec<Operand>),
    /// A device, a generator, and the like.
    Other,
}

/// What a tensor holds.
#[derive(FromPyObject)]
enum Content {
    /// What Python can compute, and bytes of it that lie before. First: two numbers are a sequence of bytes too.
    Later((u64, u64)),
    Bytes(Vec<u8>),
}

/// Inputs as they are read, with what was found on the way.
struct ReadInputs<'a> {
    layout: &'a ObserverLayout,
    /// Whether a tensor is unknown, too large or of an unusual kind.
    is_unknown: bool,
    /// Whether what is unknown does not matter: indices are drawn.
    draws: bool,
    source: ByteOrigin,
    /// Whether large fractions are written, and whether they follow from what is computed later: of others nobody asks for the values.
    is_large: bool,
    has_later: bool,
}

impl Running {
    /// An operation starts with so many inputs at an address.
    ///
    /// # Safety
    /// They must be values that live while this runs.
    pub unsafe fn start(operation: &'static Operation, inputs: (usize, usize), layout: &ObserverLayout) -> Self {
        let mut running = Self {
            operation,
            results: None,
            written: Vec::new(),
            numel: 0,
            numbers: None,
            flops: (0, 0),
            weight: 100,
            class: operation.class,
            traffic: Traffic::default(),
            has_parts: false,
            places: None,
        };
        if let Some(product) = operation.product {
            // SAFETY: by the contract of this function.
            running.flops = unsafe { product.begins(inputs, layout) }.unwrap_or_default();
            // SAFETY: as above.
            (running.weight, running.class) =
                unsafe { (product.weight(inputs, layout), product.class_of(inputs, layout)) };
        }
        if matches!(operation.class, WorkClass::ByChannel | WorkClass::ByChannelBackward) {
            // SAFETY: as above.
            running.flops.0 = unsafe { flops::elements_by_channel(inputs, layout) }.unwrap_or(0);
        }
        // SAFETY: as above.
        running.traffic = unsafe { Traffic::begins(inputs, operation.writes, operation.fresh, layout) };
        if operation.kind == Duty::Other && operation.writes == 0 {
            return running;
        }
        let value = |index: usize| inputs.0 + index * VALUE;
        // SAFETY: by the contract of this function.
        unsafe {
            for index in (0..inputs.1.min(64)).filter(|index| operation.writes >> index & 1 == 1) {
                collect(value(index), layout, &mut running.written);
            }
            let copied = match operation.kind {
                Duty::Read => Some(0),
                Duty::Copied => Some(1),
                _ => None,
            };
            if let Some(index) = copied.filter(|index| *index < inputs.1) {
                let mut tensors = Vec::new();
                collect(value(index), layout, &mut tensors);
                running.numbers = tensors.first().map(|view| view.kind);
            }
            if matches!(operation.kind, Duty::Other | Duty::Check | Duty::Made | Duty::Read | Duty::Coalesced) {
                return running;
            }
            if !(0..inputs.1).any(|index| is_on_device(value(index), layout)) {
                return running; // of the host: real
            }
            if tag(value(0)) == TENSOR && layout.is_plain(word(value(0), 0)) {
                running.numel = layout.tensor.numel(word(value(0), 0));
                if operation.kind == Duty::CountedRows && inputs.1 > 1 && tag(value(1)) == layout.tags.int {
                    let sizes = layout.tensor.view(word(value(0), 0), Located::Device).map(|view| view.sizes);
                    let dimension =
                        |sizes: &Vec<usize>| (word(value(1), 0) as i64).rem_euclid(sizes.len().max(1) as i64);
                    let rows = sizes.and_then(|sizes| sizes.get(dimension(&sizes) as usize).copied());
                    running.numel = rows.unwrap_or(running.numel);
                }
            }
            let draws = matches!(operation.kind, Duty::Drawn | Duty::Random | Duty::Assumed);
            let source = ByteOrigin::Computed;
            let mut reader = ReadInputs { layout, is_unknown: false, draws, source, is_large: false, has_later: false };
            let mut all = Vec::with_capacity(inputs.1);
            for index in 0..inputs.1 {
                let is_fresh = operation.fresh >> index & 1 == 1;
                all.push(reader.read(value(index), is_fresh || reader.is_unknown && draws));
                if reader.is_unknown && operation.kind == Duty::Placed && index == 0 {
                    reader.is_unknown = false;
                    all = vec![reader.read(value(0), true)];
                }
                if reader.is_unknown && !draws {
                    return running;
                }
            }
            if reader.is_large && !reader.has_later {
                return running;
            }
            let results = compute(operation, &all, reader.is_unknown);
            let source = match (reader.is_unknown, operation.kind) {
                (_, Duty::Random) => ByteOrigin::Drawn,
                (false, _) => reader.source,
                (true, Duty::Assumed) => ByteOrigin::Check,
                (true, _) => ByteOrigin::Drawn,
            };
            // How many hold of what is assumed of unknown values is a guess.
            let is_guess = running.counts() && source == ByteOrigin::Check;
            running.results = results.filter(|_| !is_guess).map(|results| (results, source));
        }
        running
    }

    /// Counts its product, where it has one, as it ends with so many outputs at an address, and tells the stand-in's clock.
    ///
    /// # Safety
    /// They must be values that live while this runs.
    pub unsafe fn tell_work(&self, outputs: (usize, usize), layout: &ObserverLayout) {
        let (product, class, (begun, kind)) = (self.operation.product, self.class, self.flops);
        // SAFETY: by the contract of this function.
        unsafe {
            let flops = product.map_or(begun, |product| product.ends(begun, outputs, layout));
            let computed = flops / 100 * self.weight;
            stand_in::operation_took(class, kind, computed, self.traffic.ends(class, outputs, layout));
        }
    }

    /// Tells the clock what it did on the host, if it is of the host alone and made of no others.
    ///
    /// # Safety
    /// As [`Self::end`].
    pub unsafe fn tell_host_work(&self, outputs: (usize, usize), layout: &ObserverLayout) {
        let is_alone = !self.has_parts && self.operation.kind != Duty::Made;
        // SAFETY: by the contract of this function.
        let bytes = if is_alone { unsafe { self.traffic.on_host(outputs, layout) } } else { 0 };
        if bytes > 0 {
            let class = if self.operation.class == WorkClass::Random { WorkClass::HostRandom } else { WorkClass::Host };
            stand_in::operation_took(class, 0, 0, bytes);
        }
    }

    /// Whether its outputs are told whatever it launched: `all` of one element is a copy.
    pub fn makes(&self) -> bool {
        self.operation.kind == Duty::Made || self.operation.kind == Duty::Assumed && self.results.is_some()
    }

    /// It ends with so many outputs at an address, which it wrote.
    ///
    /// # Safety
    /// They must be values that live while this runs.
    pub unsafe fn end(self, outputs: (usize, usize), layout: &ObserverLayout) {
        let mut tensors = Vec::new();
        // SAFETY: by the contract of this function.
        unsafe { (0..outputs.1).for_each(|index| collect(outputs.0 + index * VALUE, layout, &mut tensors)) };
        // An operation in place may write to more than it gives back, as those on lists do: what it wrote to are its outputs.
        let gives_less = tensors.len() < self.written.len();
        let (outputs, others) = if gives_less { (&self.written, &tensors) } else { (&tensors, &self.written) };
        let (mut results, source) = match self.results {
            Some((results, source)) if results.len() == outputs.len() => (results.into_iter(), source),
            _ => {
                // What it writes to may have gaps, whose values it leaves: nobody looks at where they are.
                others.iter().for_each(forget);
                (Vec::new().into_iter(), ByteOrigin::Computed)
            }
        };
        for view in outputs {
            match results.next() {
                Some((kind, sizes, Content::Bytes(bytes))) if kind == view.kind && sizes == view.sizes => {
                    store(view, &bytes, source);
                }
                Some((_, _, Content::Later((what, _)))) if source == ByteOrigin::Computed && view.is_contiguous() => {
                    stand_in::write_later(view.data, view.span().unwrap_or(0), what);
                }
                _ => forget(view),
            }
        }
    }

    /// The type of the numbers of the device that it reads or copies.
    pub fn numbers(&self) -> Option<u16> {
        self.numbers
    }

    /// Whether what it reads is its own: all but the operations that copy to the host, and those of [`Running::read`].
    pub fn reads_its_own(&self) -> bool {
        !matches!(self.operation.kind, Duty::Read | Duty::Copied | Duty::Check) && !self.counts()
    }

    /// Whether it reads how many elements it found.
    fn counts(&self) -> bool {
        matches!(self.operation.kind, Duty::Counted | Duty::CountedRows)
    }

    /// A part of it ended with so many outputs at an address.
    ///
    /// # Safety
    /// As [`Self::end`].
    pub unsafe fn has_part(&mut self, outputs: (usize, usize), layout: &ObserverLayout) {
        if self.operation.kind == Duty::Coalesced {
            let mut tensors = Vec::new();
            // SAFETY: by the contract of this function.
            unsafe { (0..outputs.1).for_each(|index| collect(outputs.0 + index * VALUE, layout, &mut tensors)) };
            self.places = tensors.pop().filter(sparse::are_places).or(self.places.take());
        }
    }

    /// What it reads from the device in so many bytes: a number, and how it is known; not at all: it is the most that it can be.
    pub fn read(&self, bytes: usize) -> Option<(usize, Option<ByteOrigin>)> {
        match self.operation.kind {
            Duty::Check if bytes == 1 => Some((1, None)),
            Duty::Coalesced if matches!(bytes, 4 | 8) => self.places.as_ref().map(sparse::different),
            _ if self.counts() && (bytes == 4 || bytes == 8) => match &self.results {
                Some((results, source)) => Some((*results.first()?.1.first()?, Some(*source))),
                None => Some((self.numel, None)),
            },
            _ => None,
        }
    }
}

/// The tensors of the device in a value; those that are not plain, or of types that are not computed with, as all that their storage holds.
///
/// # Safety
/// A value must be at `value`.
unsafe fn collect(value: usize, layout: &ObserverLayout, tensors: &mut Vec<View>) {
    // SAFETY: by the contract of this function; a tag says what the first word is.
    unsafe {
        let first = word(value, 0);
        match tag(value) {
            TENSOR => {
                let exact = layout.is_plain(first).then(|| layout.tensor.view(first, Located::Device)).flatten();
                tensors.extend(exact.or_else(|| layout.tensor.all_of(first)));
            }
            tag if tag == layout.tags.list => {
                let (begin, count) = layout.tensor.list(first);
                (0..count).for_each(|index| collect(begin + index * VALUE, layout, tensors));
            }
            _ => {}
        }
    }
}

/// Whether a value is a plain tensor of the device, or has one.
///
/// # Safety
/// A value must be at `value`.
unsafe fn is_on_device(value: usize, layout: &ObserverLayout) -> bool {
    // SAFETY: by the contract of this function; a tag says what the first word is.
    unsafe {
        let first = word(value, 0);
        match tag(value) {
            TENSOR => layout.is_plain(first) && layout.tensor.storage(first, Located::Device).is_some(),
            tag if tag == layout.tags.list => {
                let (begin, count) = layout.tensor.list(first);
                (0..count).any(|index| is_on_device(begin + index * VALUE, layout))
            }
            _ => false,
        }
    }
}

impl ReadInputs<'_> {
    /// Reads an input; the bytes of a tensor only where they matter.
    ///
    /// # Safety
    /// A value must be at `value`.
    unsafe fn read(&mut self, value: usize, is_fresh: bool) -> Operand {
        // SAFETY: by the contract of this function; a tag says what the first word is.
        unsafe {
            let first = word(value, 0);
            let tags = self.layout.tags;
            match tag(value) {
                0 => Operand::None,
                TENSOR => self.tensor(first, is_fresh),
                DOUBLE => Operand::Float(f64::from_bits(first as u64)),
                tag if tag == tags.int => Operand::Int(first as i64),
                tag if tag == tags.bool => Operand::Bool(first & 1 == 1),
                tag if tag == tags.string => {
                    let (begin, length) = self.layout.tensor.string(first);
                    if length > 64 {
                        return Operand::Other; // of another kind than strings are today
                    }
                    let text = std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(begin), length);
                    Operand::Text(String::from_utf8_lossy(text).into_owned())
                }
                tag if tag == tags.list => {
                    let (begin, count) = self.layout.tensor.list(first);
                    let mut list = Vec::with_capacity(count);
                    for index in 0..count {
                        list.push(self.read(begin + index * VALUE, is_fresh));
                        if self.is_unknown && !self.draws {
                            break;
                        }
                    }
                    Operand::List(list)
                }
                _ => Operand::Other,
            }
        }
    }

    /// # Safety
    /// `tensor` must be the address of a `TensorImpl`.
    unsafe fn tensor(&mut self, tensor: usize, is_fresh: bool) -> Operand {
        // SAFETY: by the contract of this function; a plain tensor has sizes and strides, and its elements are in its storage.
        unsafe {
            let layout = self.layout;
            // Of no device: an undefined tensor, as in place of a whole dimension in a list of indices.
            if layout.tensor.keys(tensor) & DEVICES == 0 {
                return Operand::None;
            }
            let on_host = layout.is_on_host(tensor);
            let on_device = layout.is_plain(tensor);
            let place = if on_host { Located::Host } else { Located::Device };
            let is_usual = on_host || on_device;
            let Some(view) = is_usual.then(|| layout.tensor.view(tensor, place)).flatten() else {
                self.is_unknown = true;
                return Operand::Other;
            };
            let is_large = is_float(view.kind) && view.numel > MOST_FRACTIONS;
            if is_fresh {
                self.is_large |= is_large;
                return Operand::Tensor(view, None);
            }
            let span = view.span();
            let small = span.filter(|bytes| !is_large && *bytes <= MOST_BYTES);
            let read = match place {
                Located::Host => small.and_then(|bytes| host_memory::copy(view.data, bytes)).map(Content::Bytes),
                Located::Device => {
                    let known = small.and_then(|bytes| stand_in::known(view.data, bytes));
                    self.source = known.as_ref().map_or(self.source, |(_, source)| self.source.max(*source));
                    let later = || Some(Content::Later(stand_in::later(view.data, span?)?));
                    known.map(|(bytes, _)| Content::Bytes(bytes)).or_else(later)
                }
            };
            self.is_unknown |= read.is_none();
            self.has_later |= matches!(read, Some(Content::Later(_)));
            Operand::Tensor(view, read)
        }
    }
}

fn forget(view: &View) {
    if let Some(bytes) = view.span() {
        stand_in::forget(view.data, bytes);
    }
}

/// Writes `bytes`, the elements in order, to where a tensor has them.
fn store(view: &View, bytes: &[u8], source: ByteOrigin) {
    let Some(width) = bytes_of(view.kind) else { return forget(view) };
    // The innermost dimensions that lie in one piece.
    let (mut piece, mut dimensions) = (width, view.sizes.len());
    while dimensions > 0 && (view.strides[dimensions - 1] * width == piece || view.sizes[dimensions - 1] == 1) {
        dimensions -= 1;
        piece *= view.sizes[dimensions];
    }
    if view.numel == 0 {
        return;
    }
    let pieces = bytes.len() / piece;
    if pieces > MOST_PIECES || bytes.len() != view.numel * width {
        return forget(view);
    }
    for (index, part) in bytes.chunks_exact(piece).enumerate() {
        let (mut rest, mut at) = (index, view.data);
        for dimension in (0..dimensions).rev() {
            at += rest % view.sizes[dimension] * view.strides[dimension] * width;
            rest /= view.sizes[dimension];
        }
        stand_in::write(at, part, source);
    }
}

/// What Python gives for each output: type, sizes, what it holds.
type Computed = Vec<(u16, Vec<usize>, Content)>;

fn compute(operation: &Operation, inputs: &[Operand], is_unknown: bool) -> Option<Computed> {
    let functions = FUNCTIONS.get()?;
    calls::call(|python| {
        let inputs: Vec<_> = inputs.iter().map(|input| object(python, input)).collect::<PyResult<_>>()?;
        functions.compute.call1(python, (operation.key, inputs, is_unknown))?.extract::<Option<Computed>>(python)
    })
    .flatten()
}

/// An input as Python has it; a tensor is a tuple, what has no value here `...`.
fn object<'py>(python: Python<'py>, input: &Operand) -> PyResult<Bound<'py, PyAny>> {
    Ok(match input {
        Operand::None => python.None().into_bound(python),
        Operand::Tensor(view, bytes) => {
            let bytes = match bytes {
                None => python.None().into_bound(python),
                Some(Content::Bytes(bytes)) => PyBytes::new(python, bytes).into_any(),
                Some(Content::Later(later)) => (*later).into_pyobject(python)?.into_any(),
            };
            PyTuple::new(
                python,
                [
                    view.kind.into_pyobject(python)?.into_any(),
                    view.sizes.clone().into_pyobject(python)?,
                    view.strides.clone().into_pyobject(python)?,
                    bytes,
                ],
            )?
            .into_any()
        }
        Operand::Int(value) => value.into_pyobject(python)?.into_any(),
        Operand::Float(value) => value.into_pyobject(python)?.into_any(),
        Operand::Bool(value) => value.into_pyobject(python)?.to_owned().into_any(),
        Operand::Text(text) => text.into_pyobject(python)?.into_any(),
        Operand::List(list) => {
            let list: PyResult<Vec<_>> = list.iter().map(|input| object(python, input)).collect();
            PyList::new(python, list?)?.into_any()
        }
        Operand::Other => python.Ellipsis().into_bound(python),
    })
}
