//! What is wrong with a job's memory: causes are a table (`diagnosis.txt`) over named facts ([`Known`]), asked in order.
//!
//! Each cause rests on something that was seen: sizes that grow, a line of the call stack, empty memory in private pools, states that
//! are still to be made, an exception's frames, the memory of others. None rests on the shape of a program, or on a fact that is missing.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::facts::{HolderBytes, Role};
use crate::figures::Verdict;
use crate::known::Known;
use crate::sentence::{Named, filled, first};
use crate::table::{hold, rows};

/// The causes, as data: see its head.
pub(crate) const CAUSES: &str = include_str!("diagnosis.txt");

/// Headlines of a verdict, where a cause has none.
const HEADLINES: [(Verdict, &[&str]); 2] = [
    (
        Verdict::TooLarge,
        &[
            "A library could not get memory of the GPU, where {library} of tensors lived.",
            "Too large: the job needed at least {needed} {first}, of the {room} that it had, the rest in pieces.",
            "Too large: the job needed at least {needed} {first}<|, and had {capacity}|>.",
            "Too large: the job needed {needed} at once of the {room} that it had, the rest in pieces.",
            "Too large: the job needed {needed} at once<| and had {capacity}|>.",
        ],
    ),
    (
        Verdict::Growth,
        &[
            "Memory grows by {grown_per_step} a step<|: {grown_site} allocates what stays|><|; {piled} had piled up when the job ran out of memory|>.",
            "Memory grows by {grown_per_turn} with each turn of the loop at {turns_of}<|: {grown_site} allocates what stays|><|; {piled} had piled up when the job ran out of memory|>.",
            "Memory has grown all along: {allocated} lived when the job ran out of memory. {filled} of them are held by {holder}<|, allocated at {holder_site}|>.",
        ],
    ),
];

/// How the program ended, after every headline.
const ENDINGS: [(&str, &str); 2] = [
    ("went_on > 0", "The program caught it and went on; steps after it: {#went_on}."),
    ("steps > 0", "The program ended by {ended_by}, after {#steps} steps."),
];

/// What is said of a verdict, and of every one.
const ALWAYS: [(&str, &str); 6] = [
    ("climbs", "Live memory climbs over the last {#grown_steps} steps, by {grown_per_step} each; {grown} in all."),
    (
        "climbs",
        "Live memory climbs over the last {#grown_steps} turns of the loop, by {grown_per_turn} each; {grown} in all.",
    ),
    ("climbs", "{filled} have come piece by piece, as long as was recorded."),
    ("size, cache >= 5% needed", "{cache} of what was held are whole free segments, which PyTorch keeps as a cache."),
    ("", "{holder_bytes} are held by {holder}<|, in {#holder_blocks} tensors|>."),
    ("", "It was the first to fail: {#followed} more requests failed after it."),
];

/// The verdict with what it rests on.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    pub verdict: Verdict,
    /// Why; none where nothing is wrong or nothing tells.
    pub cause: Option<&'static str>,
    pub headline: String,
    pub facts: Vec<String>,
    /// All facts, with those of the holder that it is about.
    pub known: Named,
}

/// A name of the tables as what it names; `None` for `unknown` and what there is not.
pub(crate) fn named<T: DeserializeOwned>(name: &str) -> Option<T> {
    serde_json::from_value(Value::String(name.into())).ok()
}

/// The diagnosis.
pub fn diagnosis(known: &Known, holders: &[HolderBytes]) -> Diagnosis {
    let moment = if known.size.is_some() { "failed" } else { "ended" };
    rows(CAUSES)
        .find_map(|(head, lines)| {
            let mut parts = head.split('|').map(str::trim);
            let (verdict, cause) = parts.next()?.split_once(' ')?;
            let (when, who) = (parts.next()?, parts.next()?);
            let of = |word: &'static str| lines.iter().filter(move |line| line.0 == word).map(|line| line.1);
            let about = (when.is_empty() || when == moment).then(|| candidates(who, known, holders))?;
            let known = about.into_iter().find_map(|holder| {
                let known = known.with(holder);
                let holds = of("if").any(|one| hold(one, &known)) || of("if").next().is_none();
                holds.then_some(known)
            })?;
            let verdict = named(verdict).unwrap_or(Verdict::Unknown);
            let (heads, says): (Vec<_>, Vec<_>) = (of("head").collect(), of("say").collect());
            let cause = Some(cause).filter(|cause| *cause != "unknown");
            Some(said(verdict, cause, known, holders, &heads, &says))
        })
        .unwrap_or_else(|| said(Verdict::Unknown, None, known.named(), holders, &[], &[]))
}

fn said(
    verdict: Verdict,
    cause: Option<&'static str>,
    mut known: Named,
    holders: &[HolderBytes],
    heads: &[&str],
    says: &[&str],
) -> Diagnosis {
    // Where the cause is of no certain one, the largest.
    let is_named =
        known.get("holder").is_some_and(Value::is_string) || !matches!(verdict, Verdict::TooLarge | Verdict::Growth);
    if let Some(largest) =
        holders.first().filter(|one| !is_named && (verdict == Verdict::TooLarge || one.kind != Role::Native))
    {
        known.extend(Known::default().with(Some(largest)).into_iter().filter(|(_, fact)| !fact.is_null()));
    }
    let of_verdict = HEADLINES.iter().find(|one| one.0 == verdict).map_or(&[][..], |one| one.1);
    let mut headline = first(heads, &known).or_else(|| first(of_verdict, &known)).unwrap_or_default();
    let mut facts: Vec<String> = says.iter().filter_map(|says| filled(says, &known)).collect();
    if let Some(fact) = facts.first().filter(|_| verdict == Verdict::TooLarge) {
        headline = format!("{headline} {fact}");
    }
    let endings = ENDINGS.iter().filter(|(condition, _)| hold(condition, &known));
    headline.extend(endings.filter_map(|(_, says)| Some(format!(" {}", filled(says, &known)?))));
    let always = ALWAYS.iter().filter(|(condition, _)| hold(condition, &known));
    facts.extend(always.filter_map(|(_, says)| filled(says, &known)));
    Diagnosis { verdict, cause, headline, facts, known }
}

/// Those that a cause may be about.
fn candidates<'a>(who: &str, known: &Known, holders: &'a [HolderBytes]) -> Vec<Option<&'a HolderBytes>> {
    let kinds: Vec<Role> = who.split(' ').filter_map(named).filter(|kind| *kind != Role::Other).collect();
    let of_kinds = |one: &&HolderBytes| kinds.contains(&one.kind);
    let has = |word: &str| who.split(' ').any(|one| one == word);
    let mut found: Vec<Option<&HolderBytes>> = if has("kept") {
        let kept =
            |loaded: bool| holders.iter().filter(move |one| one.kind.is_of(Role::KEPT) && one.is_loaded == loaded);
        kept(true).chain(kept(false)).map(Some).collect()
    } else if has("growing") {
        let grown = holder_of_growth(known, holders).into_iter();
        grown.filter(|one| kinds.is_empty() || of_kinds(one)).map(Some).collect()
    } else {
        holders.iter().filter(of_kinds).map(Some).collect()
    };
    if has("any") {
        found.push(None);
    }
    found
}

/// The holder that what climbs is of: one that is filled, by the lines where what stays was allocated.
fn holder_of_growth<'a>(known: &Known, holders: &'a [HolderBytes]) -> Option<&'a HolderBytes> {
    const OF_MODEL: &[Role] = &[Role::Parameters, Role::OptimizerStates];
    const NONE: &[Role] = &[Role::Parameters, Role::Gradients, Role::OptimizerStates, Role::Native, Role::Local];
    let mut fills = holders.iter().filter(|one| !one.kind.is_of(NONE));
    let Some(bytes) = known.enlarged.or(known.grown) else {
        let filled = known.filled?;
        return fills.find(|one| one.bytes == filled);
    };
    let sites = known.grown_sites.iter().flatten().chain(&known.enlarged_site);
    let at_site = |one: &&HolderBytes| sites.clone().any(|site| one.site.as_ref() == Some(site));
    let large = |one: &&HolderBytes| one.bytes >= bytes / 4;
    let of_model = |one: &&HolderBytes| one.kind.is_of(OF_MODEL) && at_site(one) && large(one);
    let found = fills.clone().find(|one| at_site(one) && large(one)).or_else(|| fills.find(large));
    found.or_else(|| holders.iter().find(of_model))
}
