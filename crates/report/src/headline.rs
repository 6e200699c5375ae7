//! The verdict in a sentence, with the figures that prove it.

use crate::diagnosis::{Diagnosis, Evidence, most_of};
use crate::figures::{Growth, OutOfMemory, Verdict, VerdictCause};
use crate::sites::is_named;
use crate::words::{bytes, percent};

/// The verdict in a sentence.
pub fn headline(of: &Evidence<'_>, found: &Diagnosis, state_only: bool) -> String {
    match (found.verdict, of.failed) {
        (Verdict::Growth, failed) => of.enlarged.or(of.growth).map_or_else(
            || failed.map_or(String::new(), |failed| grows_by_holder(found, failed)),
            |growth| grows(growth, found, failed),
        ),
        (Verdict::Fragmentation, Some(failed)) => fragmented(found, failed),
        (Verdict::TooLarge, Some(failed)) => too_large(of, found, failed),
        (Verdict::Unknown, _) => format!(
            "Cut off: the recording has no end. Until there the job needed {} at its peak, and no request had failed.",
            bytes(of.peak_allocated)
        ),
        _ => held(of, found.verdict, state_only),
    }
}

fn grows(growth: &Growth, found: &Diagnosis, failed: Option<&OutOfMemory>) -> String {
    let site = growth.sites.first().map_or("", |top| &*top.site);
    let by = match (found.cause, site) {
        (_, "") => String::new(),
        (Some(VerdictCause::Enlarged), site) => format!(": {site} makes it anew, larger each time"),
        (_, site) => format!(": {site} allocates what stays"),
    };
    let end = match failed {
        Some(_) => format!("; {} had piled up when the job ran out of memory", bytes(growth.bytes)),
        None => String::new(),
    };
    format!("Memory grows by {} a step{by}{end}.", bytes(growth.bytes_per_step))
}

fn grows_by_holder(found: &Diagnosis, failed: &OutOfMemory) -> String {
    let holder = found.holder.as_ref().map_or(String::new(), |one| {
        format!(
            " {} of them are held by {}{}.",
            bytes(one.bytes),
            one.holder,
            one.site.as_ref().map_or(String::new(), |site| format!(", allocated at {site}"))
        )
    });
    format!("Memory has grown all along: {} lived when the job ran out of memory.{holder}", bytes(failed.allocated))
}

fn fragmented(found: &Diagnosis, failed: &OutOfMemory) -> String {
    if found.cause == Some(VerdictCause::GraphPools) {
        let facts = found.facts.first().map_or(String::new(), |fact| format!(": {}", fact.trim_end_matches('.')));
        return format!("Pools of CUDA graphs{facts}. The request that failed was for {}.", bytes(failed.size));
    }
    format!(
        "Fragmentation: {} failed with {} reserved but empty, in pieces that are too small. The job needed {} of the {} that it had.",
        bytes(failed.size),
        bytes(failed.empty.unwrap_or(0)),
        bytes(failed.allocated.saturating_add(failed.size)),
        bytes(failed.capacity.unwrap_or(0)),
    )
}

fn too_large(of: &Evidence<'_>, found: &Diagnosis, failed: &OutOfMemory) -> String {
    let needed = failed.allocated.saturating_add(failed.size);
    let fact = found.facts.first().filter(|_| {
        !matches!(
            found.cause,
            Some(VerdictCause::Weights | VerdictCause::Activations | VerdictCause::Logits | VerdictCause::Models)
        )
    });
    if let Some(VerdictCause::PinnedMemory) = found.cause {
        return format!("No memory of the host is left to pin. {}", fact.map_or("", |fact| fact));
    }
    if failed.size == 0 {
        return format!(
            "A library could not get memory of the GPU, where {} of tensors lived. {}",
            bytes(failed.allocated),
            fact.map_or("", |fact| fact)
        )
        .trim_end()
        .to_owned();
    }
    let had = match failed.capacity {
        Some(had) if needed <= had => format!(" of the {} that it had, the rest in pieces", bytes(had)),
        Some(had) => format!(" and had {}", bytes(had)),
        None => String::new(),
    };
    let rest = match (fact, of.peak_by_site.first().filter(|top| is_named(&top.site))) {
        (Some(fact), _) => format!(" {fact}"),
        (None, Some(top)) => format!(" {} is held by {}.", most_of(top.bytes, of.peak_allocated), top.site),
        (None, None) => String::new(),
    };
    format!("Too large: the job needed {} at once{had}.{rest}", bytes(needed))
}

// Nothing failed.
fn held(of: &Evidence<'_>, verdict: Verdict, state_only: bool) -> String {
    let Some(before) = of.before else {
        return format!("The program needs {} at its peak.", bytes(of.peak_allocated));
    };
    let who = if before.allocator == "actual" { "The job".to_owned() } else { before.label.to_owned() };
    let (verb, moment) = if state_only { ("holds", "") } else { ("held", " at its peak") };
    if verdict == Verdict::Healthy {
        return format!(
            "Healthy: {} {verb} {} and used {} of it{moment}.",
            if before.allocator == "actual" { "the job" } else { &who },
            bytes(before.peak_reserved),
            percent(before.efficiency)
        );
    }
    format!(
        "Fragmentation: {} {verb} {} to use {}{moment}; {} ({}) lay empty.",
        if before.allocator == "actual" { "the job" } else { &who },
        bytes(before.peak_reserved),
        bytes(of.peak_allocated),
        bytes(before.wasted),
        percent(1.0 - before.efficiency),
    )
}
