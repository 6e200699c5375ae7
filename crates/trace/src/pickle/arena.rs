//! Values of a pickle, compact: 8 bytes each, containers by reference, equal contents stored once.

use std::hash::{BuildHasher, Hasher};

use hashbrown::{DefaultHashBuilder, HashTable};
use rustc_hash::FxHashMap;

const TAG_BITS: u32 = 4;
const NONE: u32 = u32::MAX;
/// Longer runs are not looked up among earlier ones: they hardly ever repeat.
const SHARED_UP_TO: usize = 1024;

/// One value, 4 bits of tag and 60 of payload: a small integer, or an index into one of the arena's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Value(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum Tag {
    None = 0,
    Bool,
    Int,
    BigInt,
    Float,
    Text,
    Tuple,
    List,
    Dict,
    /// A field that a dict does not have. No pickle makes it.
    Missing,
}

impl Value {
    pub(crate) const NONE: Value = Value(Tag::None as u64);
    pub(crate) const MISSING: Value = Value(Tag::Missing as u64);

    fn new(tag: Tag, payload: u64) -> Self {
        Value(payload << TAG_BITS | tag as u64)
    }

    pub(crate) fn bool(value: bool) -> Self {
        Value::new(Tag::Bool, u64::from(value))
    }

    pub(crate) fn small_int(value: i32) -> Self {
        Value::new(Tag::Int, value as u64)
    }

    fn tag(self) -> Tag {
        match self.0 & 0xF {
            0 => Tag::None,
            1 => Tag::Bool,
            2 => Tag::Int,
            3 => Tag::BigInt,
            4 => Tag::Float,
            5 => Tag::Text,
            6 => Tag::Tuple,
            7 => Tag::List,
            8 => Tag::Dict,
            _ => Tag::Missing,
        }
    }

    fn index(self) -> usize {
        (self.0 >> TAG_BITS) as usize
    }

    pub(crate) fn is_dict(self) -> bool {
        self.tag() == Tag::Dict
    }

    pub(crate) fn is_list(self) -> bool {
        self.tag() == Tag::List
    }

    /// Whether there is nothing: None, or no such field.
    pub(crate) fn is_absent(self) -> bool {
        matches!(self.tag(), Tag::None | Tag::Missing)
    }

    /// The name of its type, as Python says it.
    pub(crate) fn type_name(self) -> &'static str {
        match self.tag() {
            Tag::None => "None",
            Tag::Bool => "bool",
            Tag::Int | Tag::BigInt => "int",
            Tag::Float => "float",
            Tag::Text => "str",
            Tag::Tuple => "tuple",
            Tag::List => "list",
            Tag::Dict => "dict",
            Tag::Missing => "nothing",
        }
    }
}

/// A run of values in the arena, and the run that follows it in the same container.
#[derive(Clone, Copy, Debug)]
struct ValueRun {
    start: u32,
    len: u32,
    /// For a dict: its keys, an index into `shapes`.
    shape: u32,
    next: u32,
}

const EMPTY: ValueRun = ValueRun { start: 0, len: 0, shape: NONE, next: NONE };

/// Everything that a pickle holds.
#[derive(Default)]
pub(crate) struct Pickled {
    values: Vec<Value>,
    nodes: Vec<ValueRun>,
    /// Last node of containers that have several.
    tails: FxHashMap<u32, u32>,
    /// Runs of `values` by content.
    runs: HashTable<(u32, u32)>,
    /// Keys of dicts: runs of `values`.
    shapes: Vec<(u32, u32)>,
    shape_of_run: FxHashMap<u32, u32>,
    text: Vec<u8>,
    texts: Vec<(u32, u32)>,
    text_ids: HashTable<u32>,
    big: Vec<i128>,
    floats: Vec<f64>,
    hasher: DefaultHashBuilder,
}

/// The arena has no room for more: 2^32 values or 4 GiB of text.
#[derive(Debug)]
pub(crate) struct Full;

impl Pickled {
    /// Bytes that it holds, within a small factor of the truth.
    pub(crate) fn memory(&self) -> u64 {
        let bytes = self.values.capacity() * 8
            + self.nodes.capacity() * 16
            + self.tails.capacity() * 9
            + self.runs.capacity() * 9
            + self.shapes.capacity() * 8
            + self.shape_of_run.capacity() * 9
            + self.text.capacity()
            + self.texts.capacity() * 8
            + self.text_ids.capacity() * 5
            + self.big.capacity() * 16
            + self.floats.capacity() * 8;
        bytes as u64
    }

    pub(crate) fn int(&mut self, value: i128) -> Value {
        if (-(1i128 << 59)..1i128 << 59).contains(&value) {
            return Value::new(Tag::Int, value as u64);
        }
        self.big.push(value);
        Value::new(Tag::BigInt, self.big.len() as u64 - 1)
    }

    pub(crate) fn float(&mut self, value: f64) -> Value {
        self.floats.push(value);
        Value::new(Tag::Float, self.floats.len() as u64 - 1)
    }

    /// Text; bytes that are not UTF-8 are replaced when it is read.
    pub(crate) fn text(&mut self, bytes: &[u8]) -> Result<Value, Full> {
        let hash = self.hasher.hash_one(bytes);
        let of = |texts: &[(u32, u32)], id: u32| {
            let (start, len) = texts[id as usize];
            start as usize..start as usize + len as usize
        };
        if let Some(&id) = self.text_ids.find(hash, |&id| &self.text[of(&self.texts, id)] == bytes) {
            return Ok(Value::new(Tag::Text, id.into()));
        }
        let start = u32::try_from(self.text.len()).map_err(|_| Full)?;
        let len = u32::try_from(bytes.len()).map_err(|_| Full)?;
        let id = self.texts.len() as u32;
        self.text.extend_from_slice(bytes);
        self.texts.push((start, len));
        let (hasher, text, texts) = (&self.hasher, &self.text, &self.texts);
        self.text_ids.insert_unique(hash, id, |&id| hasher.hash_one(&text[of(texts, id)]));
        Ok(Value::new(Tag::Text, id.into()))
    }

    fn node(&mut self, tag: Tag, node: ValueRun) -> Result<Value, Full> {
        let index = u32::try_from(self.nodes.len()).map_err(|_| Full)?;
        if index == NONE {
            return Err(Full);
        }
        self.nodes.push(node);
        Ok(Value::new(tag, index.into()))
    }

    pub(crate) fn empty_list(&mut self) -> Result<Value, Full> {
        self.node(Tag::List, EMPTY)
    }

    pub(crate) fn empty_dict(&mut self) -> Result<Value, Full> {
        self.node(Tag::Dict, EMPTY)
    }

    pub(crate) fn tuple(&mut self, items: &[Value]) -> Result<Value, Full> {
        let (start, len) = self.run(items)?;
        self.node(Tag::Tuple, ValueRun { start, len, ..EMPTY })
    }

    /// Appends to a list or a tuple in the making.
    pub(crate) fn append(&mut self, list: Value, items: &[Value]) -> Result<(), Full> {
        if items.is_empty() {
            return Ok(());
        }
        let (start, len) = self.run(items)?;
        self.extend(list, ValueRun { start, len, ..EMPTY })
    }

    /// Adds pairs of key and value to a dict. `scratch` is for its own use.
    pub(crate) fn insert(&mut self, dict: Value, pairs: &[Value], scratch: &mut Vec<Value>) -> Result<(), Full> {
        if pairs.is_empty() {
            return Ok(());
        }
        scratch.clear();
        scratch.extend(pairs.iter().step_by(2));
        let keys = self.run(scratch)?;
        let shape = match self.shape_of_run.get(&keys.0) {
            // Runs that start at the same position are the same run, unless they are too long to be shared.
            Some(&shape) if self.shapes[shape as usize] == keys => shape,
            _ => {
                let shape = self.shapes.len() as u32;
                self.shapes.push(keys);
                self.shape_of_run.insert(keys.0, shape);
                shape
            }
        };
        scratch.clear();
        scratch.extend(pairs.iter().skip(1).step_by(2));
        let start = self.store(scratch)?;
        self.extend(dict, ValueRun { start, len: scratch.len() as u32, shape, next: NONE })
    }

    fn extend(&mut self, container: Value, node: ValueRun) -> Result<(), Full> {
        let first = container.index();
        if self.nodes[first].len == 0 {
            self.nodes[first] = node;
            return Ok(());
        }
        let added = self.node(Tag::List, node)?.index() as u32;
        let tail = self.tails.insert(first as u32, added).unwrap_or(first as u32);
        self.nodes[tail as usize].next = added;
        Ok(())
    }

    fn store(&mut self, items: &[Value]) -> Result<u32, Full> {
        let start = u32::try_from(self.values.len()).map_err(|_| Full)?;
        u32::try_from(self.values.len() + items.len()).map_err(|_| Full)?;
        self.values.extend_from_slice(items);
        Ok(start)
    }

    /// Stores a run of values, once if it is short.
    fn run(&mut self, items: &[Value]) -> Result<(u32, u32), Full> {
        if items.len() > SHARED_UP_TO {
            return Ok((self.store(items)?, items.len() as u32));
        }
        let hash = hash_run(&self.hasher, items);
        let values = &self.values;
        let of = |&(start, len): &(u32, u32)| &values[start as usize..start as usize + len as usize];
        if let Some(&run) = self.runs.find(hash, |run| of(run) == items) {
            return Ok(run);
        }
        let run = (self.store(items)?, items.len() as u32);
        let (hasher, values) = (&self.hasher, &self.values);
        self.runs.insert_unique(hash, run, |&(start, len)| {
            hash_run(hasher, &values[start as usize..start as usize + len as usize])
        });
        Ok(run)
    }

    fn runs_of(&self, container: Value) -> impl Iterator<Item = ValueRun> + '_ {
        let mut next = container.index() as u32;
        std::iter::from_fn(move || {
            let node = *self.nodes.get(next as usize)?;
            next = node.next;
            Some(node)
        })
    }

    fn slice(&self, node: ValueRun) -> &[Value] {
        &self.values[node.start as usize..node.start as usize + node.len as usize]
    }

    /// The items of a list or tuple; `None` for anything else.
    pub(crate) fn items(&self, value: Value) -> Option<impl Iterator<Item = Value> + '_> {
        matches!(value.tag(), Tag::List | Tag::Tuple)
            .then(|| self.runs_of(value).flat_map(|node| self.slice(node).iter().copied()))
    }

    /// How many items a list or tuple has; 0 for anything else.
    pub(crate) fn len(&self, value: Value) -> usize {
        if matches!(value.tag(), Tag::List | Tag::Tuple) {
            self.runs_of(value).map(|node| node.len as usize).sum()
        } else {
            0
        }
    }

    /// A number that lists with the same items share, where they were short enough to be recognised.
    pub(crate) fn identity(&self, list: Value) -> (u32, u32) {
        let node = self.nodes[list.index()];
        if node.next == NONE { (node.start, node.len) } else { (list.index() as u32, NONE) }
    }

    /// The pairs of a dict; `None` for anything else. A key may come twice: the last one counts.
    pub(crate) fn pairs(&self, value: Value) -> Option<impl Iterator<Item = (Value, Value)> + '_> {
        value.is_dict().then(|| {
            self.runs_of(value).flat_map(|node| {
                let keys = match self.shapes.get(node.shape as usize) {
                    Some(&(start, len)) => &self.values[start as usize..start as usize + len as usize],
                    None => &[],
                };
                keys.iter().copied().zip(self.slice(node).iter().copied())
            })
        })
    }

    /// The value of a text key of a dict.
    pub(crate) fn get(&self, dict: Value, key: &str) -> Value {
        let pairs = self.pairs(dict).into_iter().flatten();
        pairs.filter(|&(k, _)| self.as_bytes(k) == Some(key.as_bytes())).last().map_or(Value::MISSING, |(_, v)| v)
    }

    pub(crate) fn as_bytes(&self, value: Value) -> Option<&[u8]> {
        (value.tag() == Tag::Text).then(|| {
            let (start, len) = self.texts[value.index()];
            &self.text[start as usize..start as usize + len as usize]
        })
    }

    pub(crate) fn as_str(&self, value: Value) -> Option<std::borrow::Cow<'_, str>> {
        self.as_bytes(value).map(String::from_utf8_lossy)
    }

    pub(crate) fn as_int(&self, value: Value) -> Option<i128> {
        match value.tag() {
            Tag::Int => Some(((value.0 as i64) >> TAG_BITS).into()),
            Tag::BigInt => Some(self.big[value.index()]),
            _ => None,
        }
    }

    pub(crate) fn as_bool(&self, value: Value) -> Option<bool> {
        (value.tag() == Tag::Bool).then(|| value.index() != 0)
    }

    pub(crate) fn as_float(&self, value: Value) -> Option<f64> {
        match value.tag() {
            Tag::Float => Some(self.floats[value.index()]),
            _ => self.as_int(value).map(|int| int as f64),
        }
    }

    /// The value for messages: its type and, where short, its content.
    pub(crate) fn describe(&self, value: Value) -> String {
        if let Some(int) = self.as_int(value) {
            return int.to_string();
        }
        if value.tag() == Tag::Float {
            return format!("the float {:?}", self.floats[value.index()]);
        }
        match self.as_str(value) {
            Some(text) => format!("the text {:?}", text.chars().take(40).collect::<String>()),
            None => format!("of type {}", value.type_name()),
        }
    }
}

fn hash_run(hasher: &DefaultHashBuilder, items: &[Value]) -> u64 {
    let mut state = hasher.build_hasher();
    for item in items {
        state.write_u64(item.0);
    }
    state.finish()
}

/// Looks up the same `N` keys in many dicts, once per set of keys.
pub(crate) struct Fields<const N: usize> {
    names: [&'static str; N],
    positions: FxHashMap<u32, [u32; N]>,
    last: (u32, [u32; N]),
}

impl<const N: usize> Fields<N> {
    pub(crate) fn new(names: [&'static str; N]) -> Self {
        Fields { names, positions: FxHashMap::default(), last: (NONE, [NONE; N]) }
    }

    /// The values of the keys, [`Value::MISSING`] for what the dict lacks (or if it is no dict).
    pub(crate) fn of(&mut self, arena: &Pickled, dict: Value) -> [Value; N] {
        let mut found = [Value::MISSING; N];
        if !dict.is_dict() {
            return found;
        }
        for node in arena.runs_of(dict) {
            let Some(&(start, len)) = arena.shapes.get(node.shape as usize) else { continue };
            if self.last.0 != node.shape {
                let keys = &arena.values[start as usize..start as usize + len as usize];
                let names = &self.names;
                let positions = self.positions.entry(node.shape).or_insert_with(|| {
                    let position = |name: &str| keys.iter().rposition(|&k| arena.as_bytes(k) == Some(name.as_bytes()));
                    names.map(|name| position(name).map_or(NONE, |at| at as u32))
                });
                self.last = (node.shape, *positions);
            }
            for (slot, &position) in found.iter_mut().zip(&self.last.1) {
                if let Some(&value) = arena.slice(node).get(position as usize) {
                    *slot = value;
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
