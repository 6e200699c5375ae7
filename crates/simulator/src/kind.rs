//! Which allocators there are, and how they are set up.

use std::str::FromStr;
use std::time::Duration;

use stalloc_caching as caching;
use stalloc_plan::Plan;
use stalloc_trace::Trace;

use crate::gmlake;

/// An allocator that a trace can be replayed through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// PyTorch's native caching allocator.
    Pytorch,
    /// The same with `expandable_segments:True`.
    PytorchExpandable,
    /// GMLake: a model of its stitching allocator.
    Gmlake,
    /// Our arena with no plan at all.
    StallocOpen,
    /// Our arena with a plan.
    Stalloc,
    /// Our arena without a plan at the start, learning as it goes.
    StallocAuto,
}

impl Kind {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Kind; 6] =
        [Kind::Pytorch, Kind::PytorchExpandable, Kind::Gmlake, Kind::StallocOpen, Kind::Stalloc, Kind::StallocAuto];

    /// Whether it is one of PyTorch's own, by whatever setting.
    pub const fn is_pytorch(self) -> bool {
        matches!(self, Kind::Pytorch | Kind::PytorchExpandable)
    }

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Pytorch => "pytorch",
            Kind::PytorchExpandable => "pytorch-expandable",
            Kind::Gmlake => "gmlake",
            Kind::StallocOpen => "stalloc-open",
            Kind::Stalloc => "stalloc",
            Kind::StallocAuto => "stalloc-auto",
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            let names = Kind::ALL.map(Kind::name).join(", ");
            format!("no allocator is called `{name}`; there are {names}")
        })
    }
}

/// How to replay.
#[derive(Clone, Debug, Default)]
pub struct Options<'a> {
    /// Bytes that the device has; `None`: more than any trace needs.
    pub capacity: Option<u64>,
    /// What the planned allocator follows.
    pub plan: Option<&'a Plan>,
    /// Options of PyTorch's allocators; `None`: as the trace says, else PyTorch's defaults. Whether segments expand
    /// follows from the [`Kind`].
    pub settings: Option<caching::Settings>,
    /// Options of GMLake.
    pub gmlake: gmlake::GmlakeSettings,
    /// Time that a step of the job takes, by which driver time is judged; `None`: as the recording says, else 100 ms.
    pub step: Option<Duration>,
}

/// How PyTorch's allocator was set up when a trace was recorded.
pub fn recorded_settings(trace: &Trace) -> caching::Settings {
    let Some(recorded) = &trace.settings else { return caching::Settings::default() };
    let mut divisions: Vec<(u64, u64)> =
        recorded.roundup_power2_divisions.iter().map(|&(mib, n)| (mib.saturating_mul(1 << 20), n)).collect();
    divisions.sort_unstable();
    if divisions.iter().all(|&(_, n)| n <= 1) {
        divisions.clear();
    }
    caching::Settings {
        expandable_segments: recorded.expandable_segments,
        max_split_size: recorded.max_split_size,
        garbage_collection_threshold: recorded.garbage_collection_threshold,
        roundup_power2_divisions: divisions,
        ..caching::Settings::default()
    }
}
