//! A job of several ranks in a few figures.

use serde::Serialize;
use stalloc_jobs::inputs::AlikeTraces;
use stalloc_report::DeviceFigures;

use crate::error::Error;
use crate::output;

/// Sums up the ranks of a job: how many, which are alike, which needs most, which failed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranks {
    /// How many processes and devices.
    count: usize,
    /// Those of each kind: alike in all that they ask for. The first of each is the one that is shown.
    kinds: Vec<Vec<u32>>,
    /// The one that needs most.
    largest: Largest,
    /// Those that an exception ended.
    failed: Vec<FailedRanks>,
    /// Efficiency over all ranks, for each allocator.
    efficiency: Vec<Spread>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Largest {
    rank: u32,
    device: u32,
    peak_allocated: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct FailedRanks {
    ranks: Vec<u32>,
    ended_by: String,
    steps: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Spread {
    allocator: &'static str,
    #[serde(skip)]
    label: &'static str,
    min: f64,
    median: f64,
    max: f64,
}

impl Ranks {
    /// From kinds of ranks and the figures of one of each; none if that is one rank alone. O(ranks log ranks).
    pub fn of(kinds: &[AlikeTraces], devices: &[DeviceFigures]) -> Option<Self> {
        let count = kinds.iter().map(|kind| kind.ranks.len()).sum();
        if count < 2 || kinds.len() != devices.len() {
            return None;
        }
        let (kind, of_it) = kinds.iter().zip(devices).max_by_key(|(_, one)| one.peak_allocated)?;
        let largest = Largest { rank: *kind.ranks.first()?, device: kind.device, peak_allocated: of_it.peak_allocated };
        let mut efficiency: Vec<Spread> = Vec::new();
        for one in devices.iter().flat_map(|device| &device.allocators) {
            if efficiency.iter().any(|spread| spread.allocator == one.allocator) {
                continue;
            }
            let mut values: Vec<f64> = Vec::new();
            for (kind, device) in kinds.iter().zip(devices) {
                let of_kind = device.allocators.iter().find(|other| other.allocator == one.allocator && !other.oom);
                values.extend(of_kind.into_iter().flat_map(|own| kind.ranks.iter().map(|_| own.efficiency)));
            }
            values.sort_by(f64::total_cmp);
            if let (Some(&min), Some(&max)) = (values.first(), values.last()) {
                let median = values[values.len() / 2];
                efficiency.push(Spread { allocator: one.allocator, label: one.label, min, median, max });
            }
        }
        let failed = kinds.iter().zip(devices).filter_map(|(kind, of_it)| {
            let ended_by = of_it.known.get("ended_by")?.as_str()?.to_owned();
            Some(FailedRanks { ranks: kind.ranks.clone(), ended_by, steps: of_it.steps })
        });
        let (failed, kinds) = (failed.collect(), kinds.iter().map(|kind| kind.ranks.clone()).collect());
        Some(Ranks { count, kinds, largest, failed, efficiency })
    }

    /// How many ranks an exception ended, in which step and which one; none if that is no rank.
    pub fn failed(&self) -> Option<String> {
        let how = |one: &FailedRanks| format!("{} in step {}", one.ended_by, one.steps + 1);
        let first = self.failed.first()?;
        let all: usize = self.failed.iter().map(|one| one.ranks.len()).sum();
        let others = self.failed.iter().any(|one| how(one) != how(first));
        let more = if others { format!("; rank {} first named", first.ranks[0]) } else { String::new() };
        Some(format!("{all} of {} ranks failed: {}{more}.", self.count, how(first)))
    }

    /// Prints them: how many kinds there are, the largest, and how efficiency spreads.
    pub fn print(&self) -> Result<(), Error> {
        let kinds = match self.kinds.len() {
            1 => "all alike".to_owned(),
            number => format!("{} of them different", output::count(number as u64)),
        };
        let Largest { rank, device, peak_allocated } = self.largest;
        output::line(&format!(
            "\n{} ranks, {kinds}; most is needed by rank {rank}, device {device}: {}",
            output::count(self.count as u64),
            output::bytes(peak_allocated)
        ))?;
        for kind in self.kinds.iter().filter(|kind| kind.len() > 1).take(MOST_KINDS) {
            let (first, others) = (kind[0], kind.len() - 1);
            output::line(&format!(
                "  rank {first} stands for {} more: {}",
                output::count(others as u64),
                spans(&kind[1..])
            ))?;
        }
        for Spread { label, min, median, max, .. } in &self.efficiency {
            let [min, median, max] = [min, median, max].map(|share| output::percent(*share));
            output::line(&format!("  efficiency, {label}: least {min}, median {median}, most {max}"))?;
        }
        Ok(())
    }
}

/// Kinds of ranks that are listed.
const MOST_KINDS: usize = 8;
/// Stretches of ranks that are listed.
const MOST_SPANS: usize = 6;

/// Numbers as stretches: `2 to 7, 9`.
fn spans(ranks: &[u32]) -> String {
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for &rank in ranks {
        match spans.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(rank) => *last = rank,
            _ => spans.push((rank, rank)),
        }
    }
    let text = |&(first, last): &(u32, u32)| match last - first {
        0 => first.to_string(),
        _ => format!("{first} to {last}"),
    };
    let mut listed: Vec<String> = spans.iter().take(MOST_SPANS).map(text).collect();
    if spans.len() > MOST_SPANS {
        listed.push("and others".to_owned());
    }
    listed.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_in_a_row_are_named_by_the_first_and_the_last() {
        assert_eq!(spans(&[2, 3, 4, 9]), "2 to 4, 9");
        assert_eq!(spans(&[1, 3, 5, 7, 9, 11, 13, 15]), "1, 3, 5, 7, 9, 11, and others");
    }
}
