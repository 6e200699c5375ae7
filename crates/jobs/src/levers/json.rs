//! The answer as `stalloc levers --json` prints it.

use serde_json::{Map, Value, json};

use crate::fit::ALLOCATORS;
use crate::levers::{Answer, LeverFigures, Row};

/// The answer as one JSON object. Sizes in bytes; `peak_reserved`, `largest` and `fits` are those of our allocator.
pub fn json(answer: &Answer) -> Value {
    let skipped =
        |lever: &crate::levers::FoundLever| json!({"name": lever.name, "what": lever.what, "why": lever.why_not});
    let combination = answer.combination.as_ref().map(|combination| {
        let mut out = figures(answer, &combination.figures);
        let names: Vec<&str> = combination.levers.iter().map(|lever| lever.name.as_str()).collect();
        let how = combination.levers.iter().map(|lever| json!({"where": lever.r#where, "how": lever.how}));
        out.insert("levers".to_owned(), json!(names));
        out.insert("how".to_owned(), how.collect());
        Value::Object(out)
    });
    json!({
        "gpu": answer.gpu.name,
        "goal": answer.goal,
        "at": values(answer),
        "base": row(answer, &answer.base),
        "levers": answer.rows.iter().map(|one| row(answer, one)).collect::<Vec<_>>(),
        "skipped": answer.skipped.iter().map(skipped).collect::<Vec<_>>(),
        "combination": combination,
        "interrupted": answer.is_interrupted,
    })
}

fn values(answer: &Answer) -> Value {
    let number = |text: &String| text.parse::<i64>().map_or_else(|_| json!(text), |number| json!(number));
    Value::Object(answer.at.iter().map(|(name, value)| (name.clone(), number(value))).collect())
}

fn row(answer: &Answer, row: &Row) -> Value {
    let mut out = match &row.outcome {
        Ok(found) => figures(answer, found),
        Err(failure) => {
            let mut out = Map::new();
            for name in ["peak_allocated", "peak_reserved", "extra_flops", "host_bytes_per_step"] {
                out.insert(name.to_owned(), Value::Null);
            }
            let error = json!({"kind": failure.kind, "status": failure.status, "lines": failure.lines});
            out.insert("error".to_owned(), error);
            out
        }
    };
    if let Some(lever) = &row.lever {
        for (name, text) in [
            ("name", &lever.name),
            ("what", &lever.what),
            ("how", &lever.how),
            ("where", &lever.r#where),
            ("numerics", &lever.numerics),
        ] {
            out.insert(name.to_owned(), json!(text));
        }
    }
    let largest = answer.at.first().zip(row.largest).map(|((name, _), value)| json!({ name: value }));
    out.insert("largest".to_owned(), json!(largest));
    Value::Object(out)
}

fn figures(answer: &Answer, figures: &LeverFigures) -> Map<String, Value> {
    let reserved: Map<String, Value> = ALLOCATORS
        .iter()
        .zip(&figures.peak_reserved)
        .map(|(kind, bytes)| (kind.name().to_owned(), json!({ "peak_reserved": bytes })))
        .collect();
    let holders = figures.holders.iter().map(|(category, bytes)| (category.name().to_owned(), json!(bytes))).collect();
    let mut out = Map::new();
    let entries = [
        ("peak_allocated", json!(figures.peak_allocated)),
        ("holders", Value::Object(holders)),
        ("peak_reserved", json!(figures.peak_reserved.last())),
        ("needed", json!(figures.needed)),
        ("fits", json!(figures.fits)),
        ("extra_flops", json!(answer.extra_flops(figures))),
        ("host_bytes_per_step", json!(answer.extra_host_bytes(figures))),
        ("step_ms", json!(answer.step_us(figures).map(|step| step as f64 / 1e3))),
        ("allocators", Value::Object(reserved)),
    ];
    out.extend(entries.map(|(name, value)| (name.to_owned(), value)));
    out
}
