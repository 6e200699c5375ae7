//! The stack machine that makes data out of a pickle's instructions.

use rustc_hash::FxHashMap;

use super::arena::{Full, Pickled, Value};
use crate::error::{Budget, Fault, FilePosition, Result};
use crate::input::InputBytes;

/// A text longer than this is not part of any snapshot.
const LONGEST_TEXT: u64 = 256 << 20;

const DUMP_AGAIN: &str = "a snapshot holds plain data only: write it with torch.cuda.memory._dump_snapshot, not torch.save or a pickle of objects";

/// Runs a pickle to its end and returns its arena and top value. Takes at most `budget` bytes.
pub(crate) fn load(input: &mut InputBytes<'_>, budget: &mut Budget) -> Result<(Pickled, Value)> {
    let mut machine = Machine::default();
    let top = machine.run(input, budget)?;
    machine.memo = Memo::default();
    budget.charge(machine.arena.memory())?;
    Ok((machine.arena, top))
}

#[derive(Default)]
struct Machine {
    arena: Pickled,
    stack: Vec<Value>,
    /// Heights of the stack at the open marks.
    marks: Vec<usize>,
    memo: Memo,
    bytes: Vec<u8>,
    scratch: Vec<Value>,
}

/// Objects by number. Picklers count upwards, so that a vector serves; anything else goes into a map, whose size
/// does not follow the numbers.
#[derive(Default)]
struct Memo {
    dense: Vec<Value>,
    sparse: FxHashMap<u32, Value>,
}

impl Memo {
    fn put(&mut self, index: u32, value: Value) {
        match (index as usize).cmp(&self.dense.len()) {
            std::cmp::Ordering::Less => self.dense[index as usize] = value,
            std::cmp::Ordering::Equal => self.dense.push(value),
            std::cmp::Ordering::Greater => {
                self.sparse.insert(index, value);
            }
        }
    }

    fn get(&self, index: u32) -> Option<Value> {
        self.dense.get(index as usize).or_else(|| self.sparse.get(&index)).copied()
    }

    fn len(&self) -> usize {
        self.dense.len() + self.sparse.len()
    }
}

/// Why an instruction could not be carried out.
enum Halt {
    Fault(Fault),
    Problem(String),
    Forbidden(String),
    Full,
}

impl From<Fault> for Halt {
    fn from(fault: Fault) -> Self {
        Halt::Fault(fault)
    }
}

impl From<Full> for Halt {
    fn from(_: Full) -> Self {
        Halt::Full
    }
}

type Executed<T> = std::result::Result<T, Halt>;

fn problem<T>(text: impl Into<String>) -> Executed<T> {
    Err(Halt::Problem(text.into()))
}

impl Machine {
    fn run(&mut self, input: &mut InputBytes<'_>, budget: &Budget) -> Result<Value> {
        let mut check_at = 0;
        loop {
            let at = input.position();
            // An instruction adds at most a few dozen bytes for each byte of its own, so it is enough to look now and then.
            if at >= check_at {
                if self.memory() > budget.limit() {
                    return Err(budget.exceeded(FilePosition::Byte(at)));
                }
                check_at = at + (1 << 18);
            }
            let Some(op) = input.next_byte()? else { return Err(input.ends_early()) };
            match self.step(op, input) {
                Ok(None) => {}
                Ok(Some(top)) => return Ok(top),
                Err(Halt::Fault(fault)) => return Err(fault),
                Err(Halt::Problem(text)) => return Err(Fault::damaged(FilePosition::Byte(at), text)),
                Err(Halt::Forbidden(text)) => return Err(Fault::new(FilePosition::Byte(at), text, DUMP_AGAIN)),
                Err(Halt::Full) => return Err(budget.exceeded(FilePosition::Byte(at))),
            }
        }
    }

    fn memory(&self) -> u64 {
        let own = self.stack.capacity() * 8
            + self.marks.capacity() * 8
            + self.memo.dense.capacity() * 8
            + self.memo.sparse.capacity() * 13
            + self.bytes.capacity()
            + self.scratch.capacity() * 8;
        own as u64 + self.arena.memory()
    }

    /// Carries out one instruction; `Some` when it was the last.
    fn step(&mut self, op: u8, input: &mut InputBytes<'_>) -> Executed<Option<Value>> {
        match op {
            b'h' => {
                let [index] = input.array()?;
                self.recall(index.into())?;
            }
            b'j' => {
                let index = u32::from_le_bytes(input.array()?);
                self.recall(index)?;
            }
            0x94 => {
                let top = self.top()?;
                self.memo.put(self.memo.len() as u32, top);
            }
            b'q' => {
                let [index] = input.array()?;
                let top = self.top()?;
                self.memo.put(index.into(), top);
            }
            b'r' => {
                let index = u32::from_le_bytes(input.array()?);
                let top = self.top()?;
                self.memo.put(index, top);
            }
            b'K' => {
                let [byte] = input.array()?;
                self.stack.push(Value::small_int(byte.into()));
            }
            b'M' => {
                let value = u16::from_le_bytes(input.array()?);
                self.stack.push(Value::small_int(value.into()));
            }
            b'J' => {
                let value = i32::from_le_bytes(input.array()?);
                self.stack.push(Value::small_int(value));
            }
            0x8A => {
                let [len] = input.array()?;
                self.long(len.into(), input)?;
            }
            0x8B => {
                let len = i32::from_le_bytes(input.array()?);
                let Ok(len) = u64::try_from(len) else { return problem("a number of negative length") };
                self.long(len, input)?;
            }
            b'G' => {
                let value = f64::from_be_bytes(input.array()?);
                let value = self.arena.float(value);
                self.stack.push(value);
            }
            0x8C | b'U' | b'C' => {
                let [len] = input.array()?;
                self.text(len.into(), input)?;
            }
            b'X' | b'B' => {
                let len = u32::from_le_bytes(input.array()?);
                self.text(len.into(), input)?;
            }
            b'T' => {
                let len = i32::from_le_bytes(input.array()?);
                let Ok(len) = u64::try_from(len) else { return problem("a text of negative length") };
                self.text(len, input)?;
            }
            0x8D | 0x8E | 0x96 => {
                let len = u64::from_le_bytes(input.array()?);
                self.text(len, input)?;
            }
            b'N' => self.stack.push(Value::NONE),
            0x88 => self.stack.push(Value::bool(true)),
            0x89 => self.stack.push(Value::bool(false)),
            b'(' => self.marks.push(self.stack.len()),
            b']' | 0x8F => {
                let list = self.arena.empty_list()?;
                self.stack.push(list);
            }
            b'}' => {
                let dict = self.arena.empty_dict()?;
                self.stack.push(dict);
            }
            b')' => self.tuple(self.stack.len())?,
            0x85 => self.tuple_of(1)?,
            0x86 => self.tuple_of(2)?,
            0x87 => self.tuple_of(3)?,
            b't' | 0x91 => {
                let base = self.mark()?;
                self.tuple(base)?;
            }
            b'a' => {
                self.height(2)?;
                self.append(self.stack.len() - 1)?;
            }
            b'e' | 0x90 => {
                let base = self.mark()?;
                self.append(base)?;
            }
            b's' => {
                self.height(3)?;
                self.insert(self.stack.len() - 2)?;
            }
            b'u' => {
                let base = self.mark()?;
                self.insert(base)?;
            }
            b'l' => {
                let base = self.mark()?;
                let list = self.arena.empty_list()?;
                self.arena.append(list, &self.stack[base..])?;
                self.stack.truncate(base);
                self.stack.push(list);
            }
            b'd' => {
                let base = self.mark()?;
                let dict = self.arena.empty_dict()?;
                self.stack.insert(base, dict);
                self.insert(base + 1)?;
            }
            // Picklers also drop a mark this way.
            b'0' if self.marks.last() == Some(&self.stack.len()) => {
                self.marks.pop();
            }
            b'0' => {
                self.pop()?;
            }
            b'1' => {
                let base = self.mark()?;
                self.stack.truncate(base);
            }
            b'2' => {
                let top = self.top()?;
                self.stack.push(top);
            }
            0x80 => {
                let [protocol] = input.array()?;
                if protocol > 5 {
                    return problem(format!("pickle protocol {protocol} is unknown (2 to 5 are read)"));
                }
            }
            // A frame's length only helps readers that fetch ahead.
            0x95 => {
                input.array::<8>()?;
            }
            b'.' => return Ok(Some(self.pop()?)),
            _ => return self.refuse(op, input),
        }
        Ok(None)
    }

    fn refuse(&mut self, op: u8, input: &mut InputBytes<'_>) -> Executed<Option<Value>> {
        let what = match op {
            b'c' | b'i' => {
                let mut name = |n| -> Executed<String> {
                    let mut line = Vec::new();
                    input.line(4096, n, &mut line)?;
                    Ok(String::from_utf8_lossy(&line).into_owned())
                };
                let (module, function) = (name(1)?, name(2)?);
                format!("wants to run Python code: {module}.{function}")
            }
            0x93 => {
                let name = |value: Option<&Value>| {
                    value.and_then(|&v| self.arena.as_str(v)).map_or("?".to_owned(), std::borrow::Cow::into_owned)
                };
                let height = self.stack.len();
                let module = name(height.checked_sub(2).and_then(|at| self.stack.get(at)));
                format!("wants to run Python code: {module}.{}", name(self.stack.last()))
            }
            b'R' | b'b' | b'o' | 0x81 | 0x92 => "wants to call Python code".to_owned(),
            0x82..=0x84 => "wants to look up a registered Python object".to_owned(),
            b'P' | b'Q' => "refers to an object outside of the file".to_owned(),
            0x97 | 0x98 => "refers to a buffer outside of the file".to_owned(),
            b'I' | b'L' | b'F' | b'S' | b'V' | b'p' | b'g' => {
                format!("pickle protocol 0 or 1 (instruction {:?}); 2 to 5 are read", op as char)
            }
            _ => return problem(format!("{op:#04x} is no pickle instruction")),
        };
        Err(Halt::Forbidden(what))
    }

    fn top(&self) -> Executed<Value> {
        self.height(1)?;
        Ok(self.stack[self.stack.len() - 1])
    }

    fn pop(&mut self) -> Executed<Value> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    /// Makes sure that `count` values lie above the last mark.
    fn height(&self, count: usize) -> Executed<()> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() < floor + count {
            return problem("the pickle takes more from its stack than there is");
        }
        Ok(())
    }

    fn mark(&mut self) -> Executed<usize> {
        match self.marks.pop() {
            Some(mark) => Ok(mark),
            None => problem("the pickle closes what it did not open"),
        }
    }

    fn recall(&mut self, index: u32) -> Executed<()> {
        match self.memo.get(index) {
            Some(value) => self.stack.push(value),
            None => return problem(format!("the pickle refers to object {index}, which it does not have")),
        }
        Ok(())
    }

    fn text(&mut self, len: u64, input: &mut InputBytes<'_>) -> Executed<()> {
        if len > LONGEST_TEXT {
            return problem(format!("a text of {len} bytes"));
        }
        self.bytes.clear();
        input.take(len, &mut self.bytes)?;
        let value = self.arena.text(&self.bytes)?;
        self.stack.push(value);
        Ok(())
    }

    /// A whole number, little-endian two's complement. Beyond 127 bits it saturates: nothing here counts that far.
    fn long(&mut self, len: u64, input: &mut InputBytes<'_>) -> Executed<()> {
        if len > LONGEST_TEXT {
            return problem(format!("a number of {len} bytes"));
        }
        self.bytes.clear();
        input.take(len, &mut self.bytes)?;
        let negative = self.bytes.last().is_some_and(|&b| b >= 0x80);
        let fill = if negative { 0xFF } else { 0 };
        let value = if self.bytes.get(16..).is_some_and(|rest| rest.iter().any(|&b| b != fill)) {
            if negative { i128::MIN } else { i128::MAX }
        } else {
            let mut wide = [fill; 16];
            for (to, from) in wide.iter_mut().zip(&self.bytes) {
                *to = *from;
            }
            i128::from_le_bytes(wide)
        };
        let value = self.arena.int(value);
        self.stack.push(value);
        Ok(())
    }

    fn tuple_of(&mut self, count: usize) -> Executed<()> {
        self.height(count)?;
        self.tuple(self.stack.len() - count)
    }

    fn tuple(&mut self, base: usize) -> Executed<()> {
        let tuple = self.arena.tuple(&self.stack[base..])?;
        self.stack.truncate(base);
        self.stack.push(tuple);
        Ok(())
    }

    /// The container that the values from `base` on go into: the one below them.
    fn container(&self, base: usize) -> Executed<Value> {
        let floor = self.marks.last().copied().unwrap_or(0);
        match base.checked_sub(1).filter(|&at| at >= floor) {
            Some(at) => Ok(self.stack[at]),
            None => problem("the pickle adds items to nothing"),
        }
    }

    fn append(&mut self, base: usize) -> Executed<()> {
        let list = self.container(base)?;
        if !list.is_list() {
            return problem(format!("the pickle appends to a {}", list.type_name()));
        }
        self.arena.append(list, &self.stack[base..])?;
        self.stack.truncate(base);
        Ok(())
    }

    fn insert(&mut self, base: usize) -> Executed<()> {
        let dict = self.container(base)?;
        if !dict.is_dict() {
            return problem(format!("the pickle adds keys to a {}", dict.type_name()));
        }
        if !(self.stack.len() - base).is_multiple_of(2) {
            return problem("a dict has a key without a value");
        }
        self.arena.insert(dict, &self.stack[base..], &mut self.scratch)?;
        self.stack.truncate(base);
        Ok(())
    }
}
