//! One device of one input: everything that is worked out before anything is written.

use std::collections::BTreeMap;

use stalloc_plan::Plan;
use stalloc_simulator::Replay;
use stalloc_trace::{Request, StringId, Time, Trace};

use crate::Subject;
use crate::actual::{ACTUAL, actual};
use crate::advice::Case;
use crate::categories::{Category, categories};
use crate::curve::{peak_within, value_at};
use crate::diagnosis::diagnosis;
use crate::enlarged::enlarged;
use crate::facts::Facts;
use crate::failure::failure;
use crate::figures::{
    AllocatorFigures, CategoryFigures, DeviceFigures, Fit, Growth, PlanFigures, StepKind, StepReserved, Verdict, label,
};
use crate::growth::growth;
use crate::holders::{by_module, by_site, modules};
use crate::holes::holes;
use crate::known::{Known, Seen};
use crate::layout::{Layout, join_pages};
use crate::live::LiveBytes;
use crate::plan_losses::plan_losses;
use crate::prepare::{CARDS, SAME, has_history};
use crate::sites::Sites;
use crate::steps::StepSpan;

/// An allocator's replay with its map.
pub struct Mapped {
    /// The replay.
    pub replay: Replay,
    /// Its blocks on the map.
    pub layout: Layout,
}

/// What a report derives of one device: figures, replays with their maps, categories, live bytes, steps.
pub struct Analysis<'a> {
    /// Its trace.
    pub trace: &'a Trace,
    /// Its plan.
    pub plan: Option<&'a Plan>,
    /// Its figures.
    pub figures: DeviceFigures,
    /// Its replays, in the order of the figures' allocators.
    pub mapped: Vec<Mapped>,
    /// What each request seems to hold.
    pub categories: Vec<Category>,
    /// Its live bytes.
    pub live: LiveBytes,
    /// Its steps.
    pub steps: Vec<StepSpan>,
    /// When live bytes are at their peak.
    pub peak_time: Time,
    /// The module that ran when each request was made; empty where there are no marks of modules.
    pub modules: Vec<Option<StringId>>,
}

impl<'a> Analysis<'a> {
    /// Works a device out.
    pub fn new(subject: &'a Subject) -> Self {
        let trace = &subject.trace;
        let steps = subject.steps.clone();
        let categories = categories(trace, &steps);
        let live = LiveBytes::new(trace, &categories);
        let peak_time = peak_within(&live.total, 0..trace.end().max(1)).0;
        let mut sites = Sites::new(trace);
        let mut allocators = Vec::new();
        let mut mapped = Vec::new();
        let replayed = subject.replays.iter().cloned().map(|mut replay| {
            join_pages(&mut replay.segments);
            replay
        });
        for replay in actual(trace, subject.failed).into_iter().chain(replayed) {
            let layout = Layout::new(trace, &replay);
            let holes = holes(trace, &replay, &layout, &live.total, &categories, &mut sites);
            allocators.push(AllocatorFigures {
                allocator: replay.allocator,
                label: label(replay.allocator),
                peak_allocated: replay.peak_allocated,
                peak_reserved: replay.peak_reserved,
                efficiency: efficiency(replay.peak_allocated, replay.peak_reserved),
                wasted: replay.peak_reserved.saturating_sub(replay.peak_allocated),
                fits: fits(subject, &replay),
                dies_at_step: BTreeMap::new(),
                same_device: subject.fits.get(&(replay.allocator, SAME)).copied(),
                oom: replay.oom.is_some(),
                holes,
            });
            mapped.push(Mapped { replay, layout });
        }
        let happened = mapped.iter().map(|one: &Mapped| &one.replay).find(|replay| replay.allocator == ACTUAL);
        let known = Facts::of(trace);
        let allowed = known.as_ref().and_then(|known| known.allowed);
        let out_of_memory = failure(trace, &live.total, happened.map(|replay| &replay.reserved[..]), allowed);
        let growth = growth(trace, &steps, known.as_ref(), &mut sites);
        let needed =
            out_of_memory.as_ref().map_or(trace.peak_allocated(), |one| one.allocated.saturating_add(one.size));
        let enlarged = enlarged(trace, needed, &mut sites);
        let live_now = out_of_memory.as_ref().map_or(0, |one| one.allocated);
        let holders = known.as_ref().map_or_else(Vec::new, |known| known.holders(trace, live_now, &mut sites));
        let at_peak = || live_at(trace, peak_time);
        let peak_by_site = by_site(&mut sites, at_peak().map(|(_, request)| request));
        let modules = modules(trace);
        let peak_by_module = by_module(trace, &modules, at_peak());
        let mut analysis = Analysis {
            trace,
            plan: subject.plan.as_ref(),
            figures: DeviceFigures {
                device: trace.device,
                name: name(trace),
                device_name: trace.metadata.get("device_name").cloned(),
                events: trace.events.len(),
                requests: trace.requests.len(),
                steps: steps.len(),
                state_only: !has_history(trace, subject.failed),
                has_stacks: !trace.stacks.is_empty(),
                has_times: !trace.times_us.is_empty(),
                peak_allocated: trace.peak_allocated(),
                peak_time,
                peak_by_site,
                peak_by_module,
                holders,
                growth,
                notes: subject.notes.clone(),
                out_of_memory,
                allocators,
                categories_from: FROM,
                plan: subject.plan.as_ref().map(|plan| plan_figures(trace, plan)),
                ..DeviceFigures::default()
            },
            mapped,
            categories,
            live,
            steps,
            peak_time,
            modules,
        };
        analysis.say(known.as_ref(), enlarged.as_ref());
        analysis
    }

    /// The requests that live when live bytes are at their peak.
    pub fn live_at_peak(&self) -> impl Iterator<Item = &'a Request> {
        live_at(self.trace, self.peak_time).map(|(_, request)| request)
    }

    // What follows from the rest: words, tables.
    fn say(&mut self, known: Option<&Facts>, enlarged: Option<&Growth>) {
        let find = |name: &str| self.figures.allocators.iter().find(|one| one.allocator == name);
        let before = find(ACTUAL).or(find("pytorch")).or(self.figures.allocators.first());
        // Of a job that failed what lived then, with the request that failed: a peak may have been before.
        let moment = self.figures.out_of_memory.as_ref().map_or(self.peak_time, |failed| failed.time + 1);
        let at_peak: Vec<&Request> = live_at(self.trace, moment).map(|(_, request)| request).collect();
        let by_site = by_site(&mut Sites::new(self.trace), at_peak.iter().copied());
        let seen = Seen { trace: self.trace, figures: &self.figures, steps: &self.steps, at_peak, by_site };
        let known_of_all = Known::of(&seen, known, before, enlarged);
        let found = diagnosis(&known_of_all, &self.figures.holders);
        let case = Case {
            trace: self.trace,
            before,
            allocators: &self.figures.allocators,
            failed: self.figures.out_of_memory.as_ref(),
            state_only: self.figures.state_only && known.is_none(),
        };
        let advice = case.advice(&found);
        let grows = found.verdict == Verdict::Growth;
        let is_enlarged = found.cause == Some("enlarged");
        let growth = enlarged.filter(|_| is_enlarged).cloned().or(self.figures.growth.take());
        self.figures.growth = growth.filter(|_| grows);
        self.figures.verdict = found.verdict;
        self.figures.cause = found.cause;
        self.figures.headline = found.headline;
        self.figures.facts = found.facts;
        self.figures.known = found.known;
        self.figures.advice = advice;
        if grows {
            self.fits_nowhere();
        }
        self.figures.categories = self.category_figures();
        self.figures.step_kinds = self.step_kinds();
        let replay = self.mapped.iter().map(|one| &one.replay).find(|replay| replay.allocator == "stalloc");
        if let (Some(plan), Some(replay)) = (self.plan, replay) {
            self.figures.causes = plan_losses(self.trace, plan, replay);
        }
    }

    /// A leak fits no card: the step in which each is full, by what each allocator holds at the end.
    fn fits_nowhere(&mut self) {
        let growth = self.figures.growth.clone();
        for one in &mut self.figures.allocators {
            one.fits.values_mut().for_each(|fit| *fit = Fit::No);
            one.same_device = one.same_device.map(|_| Fit::No);
            let Some(growth) = &growth else { continue };
            let each = growth.bytes_per_step.max(1);
            one.dies_at_step = CARDS
                .iter()
                .map(|&(card, bytes)| {
                    let more = bytes.saturating_sub(one.peak_reserved) / each;
                    let fewer = one.peak_reserved.saturating_sub(bytes).div_ceil(each);
                    (card, growth.number.saturating_add(more).saturating_sub(fewer).saturating_add(1))
                })
                .collect();
        }
    }

    fn category_figures(&self) -> Vec<CategoryFigures> {
        // Without steps and call stacks nothing tells one from another.
        if self.figures.state_only || (self.steps.is_empty() && !self.figures.has_stacks) {
            return Vec::new();
        }
        let point = self.live.total.partition_point(|&(t, _)| t <= self.peak_time).saturating_sub(1);
        let mut at_peak = [0; Category::ALL.len()];
        let mut own = [0; Category::ALL.len()];
        self.live.by_category(self.trace, &self.categories, |at, sums| {
            if at == point {
                at_peak = *sums;
            }
            for (most, now) in own.iter_mut().zip(sums) {
                *most = u64::max(*most, *now);
            }
        });
        Category::ALL
            .iter()
            .map(|category| CategoryFigures {
                category: category.name(),
                bytes_at_peak: at_peak[category.index()],
                peak: own[category.index()],
                requests: self.categories.iter().filter(|one| *one == category).count(),
            })
            .filter(|one| one.requests > 0)
            .collect()
    }

    fn step_kinds(&self) -> Vec<StepKind> {
        let mut kinds: Vec<(&str, Vec<&StepSpan>)> = Vec::new();
        for step in &self.steps {
            match kinds.iter_mut().find(|(kind, _)| *kind == step.kind) {
                Some((_, list)) => list.push(step),
                None => kinds.push((&step.kind, vec![step])),
            }
        }
        // Requests begun before each step, so that a step's own are a difference.
        let starts: Vec<Time> = self.trace.requests.iter().map(|request| request.alloc.unwrap_or(0)).collect();
        let begun = |time: Time| starts.partition_point(|&start| start < time);
        let most = |points: &[(Time, u64)], steps: &[&StepSpan]| {
            steps.iter().map(|step| peak_within(points, step.begin..step.end).1).max().unwrap_or(0)
        };
        kinds
            .into_iter()
            .map(|(kind, steps)| {
                let mut counts: Vec<usize> = steps.iter().map(|step| begun(step.end) - begun(step.begin)).collect();
                counts.sort_unstable();
                let reserved = self.mapped.iter().map(|one| StepReserved {
                    allocator: one.replay.allocator,
                    peak_reserved: most(&one.replay.reserved, &steps),
                });
                StepKind {
                    kind: kind.to_owned(),
                    steps: steps.len(),
                    requests: counts[counts.len() / 2],
                    peak_allocated: most(&self.live.total, &steps),
                    reserved: reserved.collect(),
                }
            })
            .collect()
    }
}

const FROM: &str = "Inferred from lifetimes, steps and call stacks: no recorder says what a block holds.";

fn name(trace: &Trace) -> String {
    let many = trace.metadata.get("world_size").is_some_and(|size| size != "1");
    match trace.metadata.get("rank").filter(|rank| many || *rank != "0") {
        Some(rank) => format!("rank {rank}, device {}", trace.device),
        None => format!("device {}", trace.device),
    }
}

/// The requests that live at a time, with their numbers.
pub fn live_at(trace: &Trace, time: Time) -> impl Iterator<Item = (usize, &Request)> {
    trace.requests.iter().enumerate().filter(move |(_, request)| {
        let end = request.free_requested.unwrap_or(Time::MAX);
        request.alloc.unwrap_or(0) <= time && time < end
    })
}

/// Peak allocated over peak reserved; 1 where nothing is reserved.
fn efficiency(allocated: u64, reserved: u64) -> f64 {
    if reserved == 0 { 1.0 } else { (allocated as f64 / reserved as f64).min(1.0) }
}

fn fits(subject: &Subject, replay: &Replay) -> BTreeMap<&'static str, Fit> {
    // What ran out of memory needed more than it held, and does not fit a device of the size that it failed on.
    let failed = subject.failed.filter(|_| replay.allocator == ACTUAL).map(|id| subject.trace.request(id));
    let at_failure = failed
        .map_or(0, |request| value_at(&replay.reserved, request.alloc.unwrap_or(0)).saturating_add(request.rounded()));
    let reserved = replay.peak_reserved.max(at_failure);
    let too_small = failed.and(subject.capacity).map_or(0, |capacity| capacity.saturating_add(capacity / 32));
    let verdict = |name: &'static str, bytes: u64| {
        if bytes <= too_small {
            Fit::No
        } else if reserved <= bytes {
            Fit::Yes
        } else if replay.peak_allocated > bytes {
            Fit::No
        } else {
            // What happened would have gone as the model of the allocator that it ran on.
            let expandable = subject.trace.settings.as_ref().is_some_and(|settings| settings.expandable_segments);
            let model = match replay.allocator {
                ACTUAL if expandable => "pytorch-expandable",
                ACTUAL => "pytorch",
                name => name,
            };
            subject.fits.get(&(model, name)).copied().unwrap_or(Fit::Unknown)
        }
    };
    CARDS.iter().map(|&(name, bytes)| (name, verdict(name, bytes))).collect()
}

fn plan_figures(trace: &Trace, plan: &Plan) -> PlanFigures {
    let planned = plan.trace_map.iter().filter(|slot| slot.is_some()).count();
    PlanFigures {
        arena: plan.arena,
        lower_bound: plan.lower_bound,
        planned_requests: planned,
        dynamic_requests: trace.requests.len().saturating_sub(planned),
    }
}
