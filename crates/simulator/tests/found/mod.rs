//! Small programs that ask for memory as training loops do, written as text: what the search for worst cases climbs over, and the
//! tests keep.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

use stalloc_trace::{Event, Mark, Request, RequestId, StackId, StreamId, Trace};

/// Numbers that look random and are the same everywhere (splitmix64).
pub struct Draw(pub u64);

impl Draw {
    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

/// In which order the blocks of an operation are freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    FirstFirst,
    LastFirst,
    EveryOther,
}

/// One operation of a step: blocks of about one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// It runs in every so many-th step; 0: in the first alone.
    pub every: u64,
    /// How many blocks.
    pub blocks: u64,
    /// Bytes of each, at least.
    pub size: u64,
    /// Up to so many sixteenths larger, drawn for each block; or for each step.
    pub spread: u64,
    pub by_step: bool,
    /// Operations until the blocks are freed; 0: each before the next one is asked for. [`Op::FOREVER`]: never.
    pub life: u64,
    /// Bytes of a block that follows each, and operations until that is freed; 0: none.
    pub after: u64,
    pub after_life: u64,
    pub stream: u32,
    pub order: Order,
}

impl Op {
    pub const FOREVER: u64 = 255;
}

/// Steps of operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    pub steps: u64,
    pub ops: Vec<Op>,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "steps {}", self.steps)?;
        writeln!(f, "# every blocks size spread by_step life after after_life stream order")?;
        for op in &self.ops {
            let Op { every, blocks, size, spread, by_step, life, after, after_life, stream, order } = op;
            let by_step = u8::from(*by_step);
            let order = *order as u8;
            writeln!(f, "{every} {blocks} {size} {spread} {by_step} {life} {after} {after_life} {stream} {order}")?;
        }
        Ok(())
    }
}

impl FromStr for Program {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut program = Program { steps: 0, ops: Vec::new() };
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let number = |word: &str| word.parse::<u64>().map_err(|_| format!("{line}: `{word}` is no number"));
            if let Some(steps) = line.strip_prefix("steps ") {
                program.steps = number(steps)?;
                continue;
            }
            let numbers: Vec<u64> = line.split_whitespace().map(number).collect::<Result<_, _>>()?;
            let [every, blocks, size, spread, by_step, life, after, after_life, stream, order] = numbers[..] else {
                return Err(format!("{line}: ten numbers are expected"));
            };
            let by_step = by_step != 0;
            let order = [Order::FirstFirst, Order::LastFirst, Order::EveryOther][(order % 3) as usize];
            let stream = stream as u32;
            program.ops.push(Op { every, blocks, size, spread, by_step, life, after, after_life, stream, order });
        }
        Ok(program)
    }
}

/// A trace that grows.
#[derive(Default)]
struct Maker {
    trace: Trace,
    /// What is to be freed, by the number of the operation before which it is.
    due: VecDeque<Vec<RequestId>>,
}

impl Maker {
    fn alloc(&mut self, size: u64, stream: u32) -> RequestId {
        let id = RequestId(self.trace.requests.len() as u32);
        let alloc = Some(self.trace.events.len() as u32);
        let (stream, stack) = (StreamId(stream), StackId::NONE);
        let (address, free_requested, free_completed) = (None, None, None);
        self.trace.requests.push(Request { size, stream, address, stack, alloc, free_requested, free_completed });
        self.trace.events.push(Event::Alloc(id));
        id
    }

    fn free(&mut self, id: RequestId) {
        let now = self.trace.events.len() as u32;
        let request = &mut self.trace.requests[id.index()];
        (request.free_requested, request.free_completed) = (Some(now), Some(now + 1));
        self.trace.events.extend([Event::FreeRequested(id), Event::FreeCompleted(id)]);
    }

    fn later(&mut self, life: u64, ids: impl IntoIterator<Item = RequestId>) {
        let life = life as usize;
        if self.due.len() <= life {
            self.due.resize_with(life + 1, Vec::new);
        }
        self.due[life].extend(ids);
    }

    fn run(&mut self, op: &Op, of_step: u64, draw: &mut Draw) {
        let more = |drawn: u64| op.size / 16 * (drawn % (op.spread + 1));
        let (mut blocks, mut after) = (Vec::new(), Vec::new());
        for _ in 0..op.blocks {
            let drawn = draw.below(1 << 32);
            let id = self.alloc(op.size + more(if op.by_step { of_step } else { drawn }), op.stream);
            if op.after > 0 {
                after.push(self.alloc(op.after, op.stream));
            }
            match op.life {
                0 => self.free(id),
                _ => blocks.push(id),
            }
        }
        match op.order {
            Order::FirstFirst => {}
            Order::LastFirst => blocks.reverse(),
            Order::EveryOther => {
                let (even, odd): (Vec<_>, Vec<_>) = blocks.iter().partition(|id| id.0 % 4 < 2);
                blocks = [even, odd].concat();
            }
        }
        if op.life != Op::FOREVER {
            self.later(op.life, blocks);
        }
        if op.after_life != Op::FOREVER {
            self.later(op.after_life, after);
        }
    }
}

impl Program {
    /// What it asks for, with marks of its steps.
    pub fn trace(&self) -> Trace {
        let mut maker = Maker::default();
        maker.trace.streams = vec![0, 1, 2];
        let mut draw = Draw(7);
        for step in 0..self.steps {
            maker.trace.events.push(Event::Mark(Mark::StepBegin));
            let of_step = draw.below(1 << 32);
            for op in &self.ops {
                let is_due = if op.every == 0 { step == 0 } else { step % op.every == op.every - 1 };
                if is_due {
                    maker.run(op, of_step, &mut draw);
                }
                for id in maker.due.pop_front().unwrap_or_default() {
                    maker.free(id);
                }
            }
        }
        maker.trace
    }

    /// How many requests a trace of it has, about.
    pub fn requests(&self) -> u64 {
        let of = |op: &Op| {
            let times = self.steps.checked_div(op.every).unwrap_or(1);
            times * op.blocks * (1 + u64::from(op.after > 0))
        };
        self.ops.iter().map(of).sum()
    }
}
