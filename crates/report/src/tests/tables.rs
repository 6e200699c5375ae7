//! The tables of causes and of what helps: each row is reached by its facts, and none stays without them.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::advice::{REMEDIES, remedy};
use crate::diagnosis::{CAUSES, Diagnosis, diagnosis, named};
use crate::facts::{HolderBytes, Role};
use crate::figures::Verdict;
use crate::known::Known;
use crate::sentence::filled;
use crate::table::rows;

/// Facts of a job that failed and of which nothing else is known, in MiB.
fn failed(more: &Value) -> Known {
    let mut facts = json!({"size": 100, "allocated": 800, "needed": 900, "capacity": 850, "missing": 50, "command": "python train.py", "gpu": "h100-80gb"});
    facts.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(facts).unwrap()
}

fn holder(kind: Role, bytes: u64) -> HolderBytes {
    HolderBytes { kind, bytes, holder: "list `kept` of `Net`".into(), blocks: 20, ..HolderBytes::default() }
}

/// Facts of each cause, with a holder where it is about one.
fn cases() -> Vec<(Verdict, Option<&'static str>, Known, Vec<HolderBytes>)> {
    use Verdict::{Fragmentation, Growth, TooLarge};
    let grows =
        json!({"grown": 700, "grown_per_step": 7, "grown_steps": 100, "grown_site": "train.py:9 main", "climbs": true});
    let device = |more: Value| {
        let mut all = json!({"total": 2000, "free": 100, "reserved": 800, "foreign": 1000, "others": 900});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        failed(&all)
    };
    let grown = |cause, kind, more: Value| {
        let mut all = grows.clone();
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        (Growth, Some(cause), failed(&all), vec![holder(kind, 700)])
    };
    let large = |cause, facts: Value| (TooLarge, Some(cause), failed(&facts), Vec::new());
    let loaded = HolderBytes { is_loaded: true, ..holder(Role::Container, 60) };
    vec![
        large("pinned_memory", json!({"pinning": true, "pinned": 7, "free": 9})),
        large("limit", json!({"allowed": 850, "total": 2000, "reserved": 820, "free": 700})),
        (TooLarge, Some("other_processes"), device(json!({"processes": "process 7 has 900 B"})), vec![]),
        (TooLarge, Some("libraries"), device(json!({"others": 0})), vec![]),
        (TooLarge, Some("exception"), failed(&json!({})), vec![holder(Role::Exception, 300)]),
        (TooLarge, Some("exception"), failed(&json!({})), vec![holder(Role::KeptException, 300)]),
        grown("exception", Role::KeptException, json!({})),
        (
            Growth,
            Some("enlarged"),
            failed(
                &json!({"enlarged": 300, "enlarged_by": 8, "enlarged_times": 40, "enlarged_site": "net.py:3 forward"}),
            ),
            vec![],
        ),
        (Fragmentation, Some("graph_pools"), failed(&json!({"pools": 3, "pools_empty": 400})), vec![]),
        grown("hook", Role::Hook, json!({})),
        grown("cycles", Role::Garbage, json!({})),
        grown("gradient_cycle", Role::GradientCycle, json!({})),
        (Growth, Some("cycles"), failed(&json!({})), vec![holder(Role::Garbage, 300)]),
        (Growth, Some("gradient_cycle"), failed(&json!({})), vec![holder(Role::GradientCycle, 300)]),
        grown("no_grad", Role::GraphOfMany, json!({"evaluates": "No optimizer exists"})),
        grown("graph", Role::GraphOfMany, json!({})),
        grown("kept", Role::Container, json!({})),
        large("optimizer_states", json!({"fails_in_optimizer": true, "optimizer": "AdamW", "to_come": 200})),
        (TooLarge, Some("kept"), failed(&json!({})), vec![holder(Role::Dataset, 300)]),
        (TooLarge, Some("kept"), failed(&json!({})), vec![holder(Role::Native, 500), loaded]),
        large("kept", json!({"loaded": 300, "built": 100, "loaded_site": "train.py:5 main"})),
        (
            TooLarge,
            Some("optimizer_states"),
            failed(&json!({"optimizer": "AdamW", "to_come": 400, "gradients": 200, "later": 600, "graphs": 0})),
            vec![holder(Role::Parameters, 200)],
        ),
        large(
            "models",
            json!({"optimizer": "AdamW", "to_come": 200, "trained": 300, "steps": 5, "fails_in_optimizer": true}),
        ),
        large("weights", json!({"size": 450, "gradients": 450, "model": 450, "fails_in_backward": true})),
        large("outlier", json!({"usual": 20, "times_usual": 5, "site": "train.py:3 main", "site_bytes": 100})),
        (Fragmentation, Some("pieces"), failed(&json!({"is_piecemeal": true, "empty": 60, "unused": 120})), vec![]),
        large("one_request", json!({"size": 500, "site": "train.py:3 main"})),
        (
            TooLarge,
            Some("no_grad"),
            failed(&json!({"grad_enabled": true, "evaluates": "No optimizer exists"})),
            vec![holder(Role::Graph, 300)],
        ),
        large("gradient_buckets", json!({"buckets": 100})),
        large("gathered", json!({"gathered": 300})),
        large("logits", json!({"loss": 100, "fails_in_loss": true})),
        (
            TooLarge,
            Some("models"),
            failed(&json!({"models_bytes": 500, "second_model": 200, "models": "2 models are on the GPU."})),
            vec![holder(Role::Parameters, 300)],
        ),
        (TooLarge, Some("remade"), failed(&json!({"remade": 300, "model": 500})), vec![holder(Role::Graph, 300)]),
        large("weights", json!({"model": 500})),
        large("weights", json!({"resident": 500})),
        large("weights", json!({"built": 500})),
        large("weights", json!({"resident": 300, "made_for_weights": 300, "made": 600})),
        (
            TooLarge,
            Some("activations"),
            failed(&json!({"graphs": 400, "first": "in its first forward pass"})),
            vec![holder(Role::Graph, 400)],
        ),
        large("activations", json!({"made": 500})),
        large("activations", json!({"forward": 500})),
        (
            Verdict::Unknown,
            Some("failed"),
            serde_json::from_value(json!({"ended_by": "ValueError at train.py:31 main", "peak": 700})).unwrap(),
            vec![],
        ),
        (TooLarge, None, failed(&json!({"most": "Most of it", "top_site": "net.py:3 forward"})), vec![]),
    ]
}

/// All that is said of a job.
fn sentences(found: &Diagnosis) -> Vec<String> {
    let advice = remedy(found.cause.unwrap_or("unknown"), &found.known);
    let said = [found.headline.clone()].into_iter().chain(found.facts.clone());
    said.chain(advice.into_iter().flat_map(|one| [Some(one.text), one.command]).flatten())
        .filter(|one| !one.is_empty())
        .collect()
}

/// The names of facts in a template, those of parts that may be left out apart.
fn names(template: &str) -> BTreeSet<String> {
    let mut needed = template.to_owned();
    while let Some((before, rest)) = needed.clone().split_once("<|") {
        needed = format!("{before}{}", rest.split_once("|>").unwrap().1);
    }
    needed
        .split('{')
        .skip(1)
        .map(|part| part.split_once('}').unwrap().0.trim_start_matches(['#', '^']).to_owned())
        .collect()
}

#[test]
fn each_cause_is_reached_by_its_facts() {
    let mut reached = BTreeSet::new();
    for (verdict, cause, known, holders) in cases() {
        let found = diagnosis(&known, &holders);
        assert_eq!((found.verdict, found.cause), (verdict, cause), "{}", found.headline);
        assert!(found.headline.len() > 20 && !sentences(&found).is_empty(), "{}", found.headline);
        assert!(cause == Some("pieces") || sentences(&found).len() > 1 + found.facts.len(), "{cause:?} has no advice");
        reached.insert(found.cause.unwrap_or("unknown").to_owned());
    }
    let all = rows(CAUSES).map(|(head, _)| head.split([' ', '|']).nth(1).unwrap().to_owned());
    let missing: Vec<String> =
        all.filter(|one| one != "unknown" && one != "cut_off" && !reached.contains(one)).collect();
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn no_sentence_stays_whose_fact_is_removed() {
    let templates: Vec<&str> = [CAUSES, REMEDIES]
        .into_iter()
        .flat_map(rows)
        .flat_map(|(_, lines)| lines)
        .filter(|line| line.0 != "if")
        .map(|line| line.1)
        .collect();
    let mut removed = 0;
    for (_, cause, known, holders) in cases() {
        let whole = diagnosis(&known, &holders);
        for (name, _) in known.named().into_iter().filter(|(_, value)| !value.is_null()) {
            let mut facts = known.named();
            facts.insert(name.clone(), Value::Null);
            let found = diagnosis(&serde_json::from_value(Value::Object(facts)).unwrap(), &holders);
            let said = sentences(&found);
            let of_it = templates.iter().filter(|template| names(template).contains(&name));
            for gone in of_it.filter_map(|template| filled(template, &whole.known)) {
                assert!(!said.iter().any(|one| one.contains(&gone)), "{cause:?} without {name} still says: {gone}");
                removed += 1;
            }
            let rests = conditions(cause).into_iter().all(|line| line.contains(&name));
            let is_other = (found.verdict, found.cause) != (whole.verdict, whole.cause);
            assert!(!rests || is_other, "{cause:?} is reached without {name}: {}", found.headline);
        }
    }
    assert!(removed > 60, "{removed}");
}

#[test]
fn whole_free_segments_of_one_moment_are_cache_and_no_fragmentation() {
    let at = |cache: Value| {
        let facts = json!({"is_fragmented": true, "job": "the job", "held_now": 4000, "peak": 1000, "pieces": 1500, "empty_share": "37 %",
            "used_share": "25 %", "cache": cache});
        diagnosis(&serde_json::from_value(facts).unwrap(), &[])
    };
    let cached = at(json!(1500));
    assert_eq!((cached.verdict, cached.cause), (Verdict::Healthy, None), "{}", cached.headline);
    assert!(cached.facts[0].contains("(37 %) lie empty between blocks"), "{:?}", cached.facts);
    assert_eq!(at(Value::Null).verdict, Verdict::Fragmentation);
}

/// The facts that each alternative of a cause's conditions needs; none for a cause of several rows.
fn conditions(cause: Option<&'static str>) -> Vec<BTreeSet<String>> {
    let name = cause.unwrap_or("unknown");
    let rows: Vec<_> = rows(CAUSES).filter(|(head, _)| head.split([' ', '|']).nth(1) == Some(name)).collect();
    let [(_, lines)] = &rows[..] else { return vec![BTreeSet::new()] };
    let needs = |line: &str| {
        let words = line.split(", ").filter(|one| !one.starts_with("no ")).flat_map(|one| one.split([' ', '=']));
        words.map(str::to_owned).collect()
    };
    lines.iter().filter(|line| line.0 == "if").map(|line| needs(line.1)).collect()
}

#[test]
fn the_tables_name_facts_causes_and_kinds_that_there_are() {
    let one = HolderBytes { content: "Request".into(), owner: "torch.Net".into(), ..holder(Role::Attribute, 20) };
    let known: Map<String, Value> = Known::default().with(Some(&one));
    let is_fact = |name: &str| assert!(known.contains_key(name), "{name}");
    let conditions_name_facts = |conditions: &'static str| {
        let of_words = |one: &'static str| one.split_once('=').filter(|(name, _)| !name.ends_with(['<', '>']));
        let sums = conditions.split(", ").map(|one| of_words(one).map_or(one, |(name, _)| name));
        let words = sums.flat_map(|one| one.split(' ')).filter(|one| one.starts_with(|c: char| c.is_ascii_lowercase()));
        words.filter(|one| *one != "no").for_each(is_fact);
    };
    for (head, lines) in rows(CAUSES).chain(rows(REMEDIES)) {
        for (word, text) in &lines {
            assert!(["if", "head", "say", "text", "code"].contains(word), "{head}: {word}");
            names(&text.replace("<|", "").replace("|>", "")).iter().for_each(|name| is_fact(name));
            if *word == "if" {
                conditions_name_facts(text);
            }
        }
    }
    for (head, _) in rows(CAUSES) {
        let [what, when, who] = head.split(" |").map(str::trim).collect::<Vec<_>>()[..] else { panic!("{head}") };
        let (verdict, cause) = what.split_once(' ').unwrap();
        assert!(named::<Verdict>(verdict).is_some() && !cause.is_empty(), "{head}");
        assert!(["", "failed", "ended"].contains(&when), "{head}");
        let kinds = who.split(' ').filter(|one| !["any", "kept", "growing"].contains(one));
        kinds.for_each(|kind| assert!(named::<Role>(kind).is_some_and(|kind| kind != Role::Other), "{head}: {kind}"));
    }
    for (head, _) in rows(REMEDIES) {
        let (cause, conditions) = head.split_once(' ').unwrap_or((head, ""));
        assert!(
            rows(CAUSES).any(|(head, _)| head.split([' ', '|']).nth(1) == Some(cause))
                || ["unknown", "moment", "afterwards", "applied"].contains(&cause),
            "{head}"
        );
        conditions_name_facts(conditions);
    }
}

#[test]
fn kinds_of_holders_are_the_same_in_python() {
    let python = include_str!("../../../../python/stalloc/_out_of_memory/kinds.py");
    let theirs: Vec<&str> =
        python.lines().filter_map(|line| line.trim().split_once(" = \"")?.1.strip_suffix('"')).collect();
    assert!(theirs.iter().all(|name| named::<Role>(name).is_some_and(|kind| kind != Role::Other)), "{theirs:?}");
    let (_, ours) = include_str!("../facts.rs").split_once("pub enum Role {").unwrap();
    let (ours, _) = ours.split_once("\n}").unwrap();
    let is_kind = |line: &&str| line.ends_with(',') && !line.starts_with("//");
    let ours = ours.lines().map(str::trim).filter(is_kind).count();
    assert_eq!(ours, theirs.len() + 2, "`native` and `other` are the report's own");
}
