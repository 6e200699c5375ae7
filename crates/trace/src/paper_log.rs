//! The text log of the paper's artifact, `mem_log_dev<N>.txt`.
//!
//! Its tracing allocator writes `1 ADDRESS SIZE STREAM` for an allocation and `0 ADDRESS SIZE STREAM` for a free;
//! its Python hooks write lines between them: `Iteration Index : N` (or `end`), `micro-batch : F`, and
//! `NAME->CLASS Layer : F-start` or `F-end` around modules. Addresses and streams are pointers, in hex with `0x`
//! or `0`. Blank lines and lines that start with `#` are skipped.

use crate::builder::TraceBuilder;
use crate::error::{Budget, Fault, FilePosition, Result};
use crate::ids::StackId;
use crate::input::InputBytes;
use crate::model::{Format, Mark, Recording};
use crate::raw::RawEvent;

const LONGEST_LINE: usize = 64 << 10;
/// Memory that a line may take once it is read.
const EVENT_BYTES: u64 = 192;
const FIX: &str = "a line is `1|0 ADDRESS SIZE STREAM`, or a mark of the artifact's hooks such as `micro-batch : F`";

/// Whether a line is one of such a log.
pub(crate) fn is_line(line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(line);
    event(&line).is_some_and(|event| event.is_ok()) || hook(&line).is_some()
}

/// What a hook's line says.
enum Hook<'a> {
    Iteration(&'a str),
    MicroBatch(&'a str),
    Range { name: &'a str, begins: bool },
}

fn hook(line: &str) -> Option<Hook<'_>> {
    let (left, right) = line.rsplit_once(':')?;
    let (left, right) = (left.trim(), right.trim());
    match left {
        "Iteration Index" => Some(Hook::Iteration(right)),
        "micro-batch" => Some(Hook::MicroBatch(right)),
        _ => {
            let (_, edge) = right.rsplit_once('-')?;
            let begins = match edge {
                "start" => true,
                "end" => false,
                _ => return None,
            };
            Some(Hook::Range { name: left.strip_suffix("Layer").unwrap_or(left).trim(), begins })
        }
    }
}

/// The allocation or free that a line holds, if it looks like one.
fn event(line: &str) -> Option<std::result::Result<RawEvent, String>> {
    let mut words = line.split_ascii_whitespace();
    let allocates = match words.next()? {
        "1" => true,
        "0" => false,
        _ => return None,
    };
    let (address, size, stream) = (words.next()?, words.next()?, words.next());
    let parse = || {
        let address = pointer(address)?;
        let size = size.parse().map_err(|_| format!("the size {size:?} is not a whole number from 0 up"))?;
        // The log of the allocating mode has a flag here, 0 or 1; older logs have nothing.
        let stream = stream.map_or(Ok(0), pointer)?;
        if address.checked_add(size).is_none() {
            return Err(format!("a size of {size} reaches beyond any address space"));
        }
        Ok(if allocates {
            RawEvent::Alloc { address, size, stream, stack: StackId::NONE }
        } else {
            RawEvent::FreeCompleted { address, size, stream }
        })
    };
    Some(parse())
}

fn pointer(text: &str) -> std::result::Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("{:?} is no address", text.chars().take(40).collect::<String>()))
}

/// Reads a log; `device` is the one that its name says.
pub(crate) fn read(input: &mut InputBytes<'_>, mut budget: Budget, device: u32) -> Result<Recording> {
    let mut log = PaperLogBuilder { builder: TraceBuilder::new(device), in_step: false, micro_batches: Vec::new() };
    let mut line = Vec::new();
    let mut number = 1;
    let (mut failed, mut unknown) = (0u64, 0u64);
    while input.line(LONGEST_LINE, number, &mut line)? {
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        if !text.is_empty() && !text.starts_with('#') {
            budget.charge(EVENT_BYTES)?;
            match event(text) {
                // An allocation that failed is logged with a null pointer.
                Some(Ok(RawEvent::Alloc { address: 0, .. } | RawEvent::FreeCompleted { address: 0, .. })) => {
                    failed += 1
                }
                Some(Ok(event)) => unknown += u64::from(!log.builder.push(event, None)),
                Some(Err(problem)) => return Err(Fault::new(FilePosition::Line(number), problem, FIX)),
                None => match hook(text) {
                    Some(hook) => log.hook(hook, &mut budget)?,
                    None => {
                        let shown: String = text.chars().take(60).collect();
                        return Err(Fault::new(
                            FilePosition::Line(number),
                            format!("{shown:?} is not a line of a mem_log"),
                            FIX,
                        ));
                    }
                },
            }
        }
        number += 1;
    }
    log.end_step();
    let mut recording = Recording { format: Format::PaperLog, traces: Vec::new(), warnings: Vec::new() };
    if failed > 0 {
        recording.warnings.push(format!("{failed} lines with a null pointer were dropped."));
    }
    if unknown > 0 {
        recording.warnings.push(format!("{unknown} frees of unknown addresses were dropped."));
    }
    recording.traces.push(log.builder.finish());
    Ok(recording)
}

struct PaperLogBuilder {
    builder: TraceBuilder,
    in_step: bool,
    /// Micro-batches of each phase so far in this step. The log does not number them.
    micro_batches: Vec<(String, u32)>,
}

impl PaperLogBuilder {
    fn mark(&mut self, mark: Mark) {
        self.builder.push(RawEvent::Mark(mark), None);
    }

    fn end_step(&mut self) {
        if std::mem::take(&mut self.in_step) {
            self.mark(Mark::StepEnd);
        }
        self.micro_batches.clear();
    }

    fn hook(&mut self, hook: Hook<'_>, budget: &mut Budget) -> Result<()> {
        match hook {
            // What is not a number ("end", an evaluation) is outside of the training steps.
            Hook::Iteration(index) => {
                self.end_step();
                if index.parse::<u64>().is_ok() {
                    self.in_step = true;
                    self.mark(Mark::StepBegin);
                }
            }
            Hook::MicroBatch(phase) => {
                budget.charge(phase.len() as u64)?;
                let kind = self.builder.string(match phase {
                    "F" => "forward",
                    "B" => "backward",
                    "W" => "weight",
                    other => other,
                });
                let known = self.micro_batches.iter_mut().find(|(name, _)| name == phase);
                let micro_batch = match known {
                    Some((_, count)) => {
                        *count += 1;
                        *count
                    }
                    None => {
                        self.micro_batches.push((phase.to_owned(), 0));
                        0
                    }
                };
                self.mark(Mark::Phase { kind, micro_batch });
            }
            Hook::Range { name, begins } => {
                budget.charge(2 * name.len() as u64)?;
                let name = self.builder.string(name);
                self.mark(if begins { Mark::ModuleEnter(name) } else { Mark::ModuleExit(name) });
            }
        }
        Ok(())
    }
}
