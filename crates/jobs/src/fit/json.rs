//! The answer as `stalloc fit --json` prints it.

use serde_json::{Map, Value, json};

use crate::fit::evaluate::{ALLOCATORS, FitsGpu};
use crate::fit::report::{Candidate, FitAnswer, Frontier};
use crate::fit::values::Assignment;
use crate::fit::verdict::CardVerdict;
use crate::fit::{Outside, Question};

/// The answer as one JSON object. Sizes in bytes.
///
/// `fits` is true where the job gets through even if the most is taken outside PyTorch; where it does so only if the least is taken,
/// it is false and `edge` is true.
pub fn json(question: &Question, answer: &FitAnswer) -> Value {
    let largest = |gpu| {
        let of = |(index, kind): (usize, &stalloc_simulator::Kind)| {
            let values = answer.largest(question, gpu, index);
            (kind.name().to_owned(), values.map_or(Value::Null, |values| object(&values)))
        };
        Value::Object(ALLOCATORS.iter().enumerate().map(of).collect())
    };
    let frontier = answer.frontier.iter().map(|row| {
        let of = |(kind, values): (&stalloc_simulator::Kind, &Option<Assignment>)| {
            (kind.name().to_owned(), values.as_ref().map_or(Value::Null, object))
        };
        let largest: Map<String, Value> = ALLOCATORS.iter().zip(&row.largest).map(of).collect();
        json!({
            "gpu": row.gpu.name,
            "values": object(&row.fixed),
            "largest": largest,
            "caught": row.caught.as_ref().map(|(values, refused)| {
                json!({"values": object(values), "refused": refused.iter().map(|one| one.count).sum::<u64>(), "slower": refused})
            }),
            "complete": row.is_complete,
            "open": row.open.as_ref().map(|(first, last)| [first, last]),
            "unused": row.is_unused,
            "world_size": row.world_size,
            "same_ranks": same_ranks(row),
        })
    });
    // Where every combination has the same.
    let first = answer.frontier.first();
    let world_size =
        first.and_then(|row| row.world_size).filter(|size| all_have(answer, |row| row.world_size == Some(*size)));
    let same =
        first.map(same_ranks).filter(|same| all_have(answer, |row| same_ranks(row) == *same)).unwrap_or_default();
    json!({
        "candidates": answer.candidates.iter().map(candidate).collect::<Vec<_>>(),
        "largest": question.gpus.iter().map(|gpu| (gpu.name.to_owned(), largest(gpu))).collect::<Map<_, _>>(),
        "frontier": frontier.collect::<Vec<_>>(),
        "world_size": world_size,
        "same_ranks": same,
        "interrupted": answer.is_interrupted,
    })
}

fn same_ranks(row: &Frontier) -> Vec<&Vec<u32>> {
    row.classes.iter().map(|class| &class.members).collect()
}

fn all_have(answer: &FitAnswer, is_so: impl Fn(&Frontier) -> bool) -> bool {
    answer.frontier.iter().all(is_so)
}

fn candidate(candidate: &Candidate) -> Value {
    let allocator = |(index, kind): (usize, &stalloc_simulator::Kind)| {
        let verdict =
            candidate.verdicts.get(index).map_or_else(|| json!({"fits": false, "peak_reserved": null}), allocator);
        (kind.name().to_owned(), verdict)
    };
    let ranks = candidate
        .ranks
        .iter()
        .map(|&(rank, device, peak)| json!({"rank": rank, "device": device, "peak_allocated": peak}));
    let mut out = json!({
        "values": object(&candidate.values),
        "gpu": candidate.gpu.name,
        "capacity": candidate.gpu.total,
        "peak_allocated": candidate.peak_allocated,
        "peak_if_none": candidate.peak_if_none,
        "asleep": candidate.asleep,
        "steps": candidate.steps,
        "is_cut": candidate.is_cut,
        "rise": candidate.rise,
        "allocators": ALLOCATORS.iter().enumerate().map(allocator).collect::<Map<_, _>>(),
        "outside": outside(&candidate.outside),
        "ranks": ranks.collect::<Vec<_>>(),
    });
    if let Some((rank, failure)) = &candidate.failure {
        out["error"] = json!({"kind": failure.kind, "rank": rank, "status": failure.status, "lines": failure.lines});
    }
    out
}

fn allocator(verdict: &CardVerdict) -> Value {
    json!({
        "fits": verdict.fits == FitsGpu::Yes,
        "edge": verdict.fits == FitsGpu::Edge,
        "peak_reserved": verdict.peak_reserved,
        "peak_reserved_late": verdict.peak_reserved_late,
        "needed": verdict.needed,
        "left": verdict.left,
        "step_ms": verdict.step_us.map(|step| step as f64 / 1e3),
        "rank": verdict.rank.0,
        "smallest_gpu": verdict.smallest_gpu,
    })
}

fn outside(outside: &Outside) -> Value {
    json!({"low": outside.low, "high": outside.high, "parts": outside.parts})
}

/// Values by name: numbers where they are numbers.
fn object(values: &Assignment) -> Value {
    let value = |text: &String| match text.parse::<i64>() {
        Ok(number) => json!(number),
        Err(_) => match text.parse::<f64>() {
            Ok(number) if number.is_finite() => json!(number),
            _ => json!(text),
        },
    };
    Value::Object(values.iter().map(|(name, text)| (name.clone(), value(text))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_numbers_where_they_are_numbers() {
        let values = [("A", "8"), ("B", "0.5"), ("C", "full"), ("D", "nan"), ("E", "1e3")];
        let values = values.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        assert_eq!(object(&values), json!({"A": 8, "B": 0.5, "C": "full", "D": "nan", "E": 1000.0}));
    }
}
