//! The page: figures and columns in one compressed block inside one HTML file.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Write;

use base64::Engine;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde::Serialize;
use stalloc_simulator::PlacedBy;
use stalloc_trace::site::distance;
use stalloc_trace::{Frame, ROUNDING, RequestId, StackId, StringId, Trace};

use crate::Error;
use crate::categories::Category;
use crate::columns::{ColumnPlace, Columns};
use crate::curve::keep_extremes;
use crate::device::{Analysis, Mapped};
use crate::figures::Figures;
use crate::sites::Sites;
use crate::steps::{Span, phases, spans};
use crate::terminal::chosen;

/// The page without its data, bundled from `web/`.
const TEMPLATE: &str = include_str!("../assets/page.html");

/// A report is at most this large, bytes.
pub const LARGEST: usize = 19_000_000;

/// Points of a curve, all devices together.
const POINTS: usize = 1 << 17;

/// Blocks on maps, all devices together, unless the file becomes too large.
const BLOCKS: usize = 700_000;

/// Frames of a call stack that the page shows.
const FRAMES: usize = 48;

#[derive(Serialize)]
struct Page<'a> {
    figures: &'a Figures,
    categories: Vec<&'static str>,
    strings: Vec<Cow<'a, str>>,
    frames: FrameColumns,
    devices: Vec<Vec<DeviceColumns>>,
}

#[derive(Serialize)]
struct FrameColumns {
    file: ColumnPlace,
    function: ColumnPlace,
    line: ColumnPlace,
    distance: ColumnPlace,
}

#[derive(Serialize)]
struct DeviceColumns {
    end: u32,
    clock: Option<ClockColumns>,
    live: LiveColumns,
    blocks: BlockColumns,
    omitted: usize,
    sizes: ColumnPlace,
    stacks: StackColumns,
    maps: Vec<MapColumns>,
    steps: Vec<Span>,
    phases: Vec<Span>,
    streams: Vec<String>,
}

#[derive(Serialize)]
struct ClockColumns {
    time: ColumnPlace,
    us: ColumnPlace,
}

#[derive(Serialize)]
struct LiveColumns {
    time: ColumnPlace,
    total: ColumnPlace,
    categories: Vec<ColumnPlace>,
}

#[derive(Serialize)]
struct BlockColumns {
    alloc: ColumnPlace,
    life: ColumnPlace,
    size: ColumnPlace,
    stream: ColumnPlace,
    stack: ColumnPlace,
    category: ColumnPlace,
    /// String of the module that ran, plus one; null where the recording has no marks of modules.
    module: Option<ColumnPlace>,
}

#[derive(Serialize)]
struct StackColumns {
    start: ColumnPlace,
    frame: ColumnPlace,
    /// String of the call site.
    site: ColumnPlace,
}

#[derive(Serialize)]
struct MapColumns {
    allocator: &'static str,
    height: u64,
    reserved: CurveColumns,
    address: ColumnPlace,
    source: Option<ColumnPlace>,
    segments: SegmentColumns,
}

#[derive(Serialize)]
struct CurveColumns {
    time: ColumnPlace,
    value: ColumnPlace,
}

#[derive(Serialize)]
struct SegmentColumns {
    begin: ColumnPlace,
    end: ColumnPlace,
    offset: ColumnPlace,
    size: ColumnPlace,
}

/// The whole page. Where it would be larger than [`LARGEST`], the smallest and shortest-lived blocks are left out of
/// the maps.
///
/// # Errors
/// If the figures cannot be written as JSON.
pub fn page(figures: &Figures, inputs: &[Vec<Analysis<'_>>]) -> Result<String, Error> {
    let devices = inputs.iter().map(Vec::len).sum::<usize>().max(1);
    let mut blocks = BLOCKS / devices;
    loop {
        let data = pack(figures, inputs, blocks, POINTS / devices)?;
        if data.len() + TEMPLATE.len() <= LARGEST || blocks < 1000 {
            return Ok(fill(figures, &data));
        }
        blocks /= 2;
    }
}

fn fill(figures: &Figures, data: &str) -> String {
    let first = figures.inputs.first();
    let name = first.map_or("", |input| &input.name);
    let headline = chosen(figures).map_or("", |(_, device)| &device.headline);
    let mut html = String::with_capacity(TEMPLATE.len() + data.len() + 1024);
    // Only the template's own marks are replaced, once each and in this order: a name cannot be taken for one.
    let mut rest = TEMPLATE;
    for (mark, text) in [
        ("__TITLE__", escape(&format!("{name} - stalloc report"))),
        ("__SUMMARY__", escape(headline)),
        ("__DATA__", data.to_owned()),
    ] {
        if let Some((before, after)) = rest.split_once(mark) {
            html.push_str(before);
            html.push_str(&text);
            rest = after;
        }
    }
    html.push_str(rest);
    html
}

/// Text as HTML text.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Base64 of zlib of: length of the JSON part (u32, little endian), JSON, columns.
fn pack(figures: &Figures, inputs: &[Vec<Analysis<'_>>], blocks: usize, points: usize) -> Result<String, Error> {
    let mut columns = Columns::default();
    let mut names = NameTable::default();
    let devices = inputs
        .iter()
        .map(|input| input.iter().map(|one| device(&mut columns, &mut names, one, blocks, points)).collect())
        .collect();
    let frames = FrameColumns {
        file: columns.plain(names.frames.iter().map(|frame| frame.0)),
        function: columns.plain(names.frames.iter().map(|frame| frame.1)),
        line: columns.plain(names.frames.iter().map(|frame| frame.2)),
        distance: columns.plain(names.distances.iter().copied()),
    };
    let page = Page {
        figures,
        categories: Category::ALL.iter().map(|one| one.name()).collect(),
        strings: names.strings,
        frames,
        devices,
    };
    let json = serde_json::to_vec(&page)?;
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::new(6));
    let length = u32::try_from(json.len()).map_err(|_| Error::TooLarge)?;
    packed.write_all(&length.to_le_bytes())?;
    packed.write_all(&json)?;
    packed.write_all(&columns.into_bytes())?;
    Ok(base64::engine::general_purpose::STANDARD.encode(packed.finish()?))
}

/// Strings and frames of every device, each once.
#[derive(Default)]
struct NameTable<'a> {
    strings: Vec<Cow<'a, str>>,
    by_text: HashMap<&'a str, u64>,
    made: HashMap<String, u64>,
    frames: Vec<(u64, u64, u64)>,
    by_frame: HashMap<(u64, u64, u64), u64>,
    /// How far each frame is from the user's code.
    distances: Vec<u64>,
}

impl<'a> NameTable<'a> {
    fn string(&mut self, trace: &'a Trace, id: StringId) -> u64 {
        let text = trace.string(id);
        *self.by_text.entry(text).or_insert_with(|| {
            self.strings.push(Cow::Borrowed(text));
            self.strings.len() as u64 - 1
        })
    }

    /// Text that no trace holds.
    fn text(&mut self, text: &str) -> u64 {
        if let Some(&known) = self.by_text.get(text) {
            return known;
        }
        if let Some(&known) = self.made.get(text) {
            return known;
        }
        self.strings.push(Cow::Owned(text.to_owned()));
        let id = self.strings.len() as u64 - 1;
        self.made.insert(text.to_owned(), id);
        id
    }

    fn frame(&mut self, trace: &'a Trace, frame: &Frame) -> u64 {
        let key = (self.string(trace, frame.file), self.string(trace, frame.function), u64::from(frame.line));
        *self.by_frame.entry(key).or_insert_with(|| {
            self.distances.push(u64::from(distance(trace.string(frame.file))));
            self.frames.push(key);
            self.frames.len() as u64 - 1
        })
    }
}

fn device<'a>(
    columns: &mut Columns,
    names: &mut NameTable<'a>,
    analysis: &Analysis<'a>,
    blocks: usize,
    points: usize,
) -> DeviceColumns {
    let trace = analysis.trace;
    let shown = shown_requests(trace, blocks);
    let requests = || shown.iter().map(|id| trace.request(*id));
    let (sizes, size_of) = number(requests().map(|request| request.size));
    let (stacks, stack_of) = number(requests().map(|request| u64::from(request.stack.0)));
    let mut start = Vec::with_capacity(stacks.len() + 1);
    let (mut frames, mut site) = (Vec::new(), Vec::with_capacity(stacks.len()));
    let mut sites = Sites::new(trace);
    for &stack in &stacks {
        start.push(frames.len() as u64);
        site.push(names.text(&sites.known(StackId(stack as u32))));
        for frame in trace.stacks.get(StackId(stack as u32)).iter().take(FRAMES) {
            frames.push(names.frame(trace, frame));
        }
    }
    start.push(frames.len() as u64);
    let modules = (!analysis.modules.is_empty()).then(|| {
        let of = |id: &RequestId| analysis.modules[id.index()].map_or(0, |name| names.string(trace, name) + 1);
        columns.plain(shown.iter().map(of).collect::<Vec<_>>())
    });
    DeviceColumns {
        end: trace.end(),
        clock: clock(columns, trace, points),
        live: live(columns, analysis, points),
        blocks: BlockColumns {
            alloc: columns.delta(requests().map(|r| u64::from(trace.lifetime(r).start))),
            life: columns.plain(requests().map(|r| {
                let lifetime = trace.lifetime(r);
                u64::from(lifetime.end.saturating_sub(lifetime.start).max(1))
            })),
            size: columns.plain(size_of),
            stream: columns.plain(requests().map(|r| u64::from(r.stream.0))),
            stack: columns.plain(stack_of),
            category: columns.plain(shown.iter().map(|id| analysis.categories[id.index()].index() as u64)),
            module: modules,
        },
        omitted: trace.requests.len() - shown.len(),
        sizes: columns.plain(sizes),
        stacks: StackColumns { start: columns.delta(start), frame: columns.plain(frames), site: columns.plain(site) },
        maps: analysis.mapped.iter().map(|mapped| map(columns, mapped, &shown, points)).collect(),
        steps: spans(&analysis.steps),
        phases: phases(trace),
        streams: trace.streams.iter().map(|handle| format!("{handle:#x}")).collect(),
    }
}

/// The requests for the maps, in order: all, or those that cover the most bytes for the longest.
pub(crate) fn shown_requests(trace: &Trace, limit: usize) -> Vec<RequestId> {
    let mut all: Vec<RequestId> = (0..trace.requests.len() as u32).map(RequestId).collect();
    if all.len() > limit {
        let area = |id: &RequestId| {
            let request = trace.request(*id);
            let lifetime = trace.lifetime(request);
            u128::from(request.rounded()) * u128::from(lifetime.end.saturating_sub(lifetime.start))
        };
        all.select_nth_unstable_by_key(limit, |id| (std::cmp::Reverse(area(id)), id.0));
        all.truncate(limit);
        all.sort_unstable();
    }
    // The painter stops at the first block that begins too late, so they must be in the order of time.
    all.sort_by_key(|id| trace.lifetime(trace.request(*id)).start);
    all
}

/// Distinct values in the order of their first use, and the index of each use.
fn number(values: impl Iterator<Item = u64>) -> (Vec<u64>, Vec<u64>) {
    let mut known = HashMap::new();
    let mut distinct = Vec::new();
    let uses = values
        .map(|value| {
            *known.entry(value).or_insert_with(|| {
                distinct.push(value);
                distinct.len() as u64 - 1
            })
        })
        .collect();
    (distinct, uses)
}

fn clock(columns: &mut Columns, trace: &Trace, points: usize) -> Option<ClockColumns> {
    let times = &trace.times_us;
    let start = *times.first()?;
    let stride = times.len().div_ceil(points.max(2));
    let mut at: Vec<usize> = (0..times.len()).step_by(stride).collect();
    if at.last() != Some(&(times.len() - 1)) {
        at.push(times.len() - 1);
    }
    Some(ClockColumns {
        time: columns.delta(at.iter().map(|&i| i as u64)),
        us: columns.delta(at.iter().map(|&i| times[i].saturating_sub(start))),
    })
}

fn live(columns: &mut Columns, analysis: &Analysis<'_>, points: usize) -> LiveColumns {
    let total = &analysis.live.total;
    let values: Vec<u64> = total.iter().map(|&(_, bytes)| bytes).collect();
    let kept = keep_extremes(&values, points);
    let mut by_category: Vec<Vec<u64>> = vec![Vec::new(); Category::ALL.len()];
    if !analysis.figures.categories.is_empty() {
        let mut next = kept.iter().peekable();
        analysis.live.by_category(analysis.trace, &analysis.categories, |point, sums| {
            if next.peek() == Some(&&point) {
                next.next();
                for (column, bytes) in by_category.iter_mut().zip(sums) {
                    column.push(bytes / ROUNDING);
                }
            }
        });
    }
    let known = !analysis.figures.categories.is_empty();
    LiveColumns {
        time: columns.delta(kept.iter().map(|&i| u64::from(total[i].0))),
        total: columns.delta(kept.iter().map(|&i| total[i].1 / ROUNDING)),
        categories: by_category.into_iter().filter(|_| known).map(|column| columns.delta(column)).collect(),
    }
}

fn map(columns: &mut Columns, mapped: &Mapped, shown: &[RequestId], points: usize) -> MapColumns {
    let Mapped { replay, layout } = mapped;
    let values: Vec<u64> = replay.reserved.iter().map(|&(_, bytes)| bytes).collect();
    let kept = keep_extremes(&values, points);
    let place = |id: &RequestId| layout.places[id.index()].map_or(0, |place| place / ROUNDING + 1);
    let planned = replay.placements.iter().any(|placement| placement.source != PlacedBy::Online);
    let source = planned.then(|| {
        let mut sources = vec![0; layout.places.len()];
        for placement in &replay.placements {
            sources[placement.request.index()] = match placement.source {
                PlacedBy::Online => 0,
                PlacedBy::Planned => 1,
                PlacedBy::BestFit => 2,
                PlacedBy::Fallback => 3,
            };
        }
        columns.plain(shown.iter().map(|id| sources[id.index()]))
    });
    MapColumns {
        allocator: replay.allocator,
        height: layout.height.div_ceil(ROUNDING),
        reserved: CurveColumns {
            time: columns.delta(kept.iter().map(|&i| u64::from(replay.reserved[i].0))),
            value: columns.delta(kept.iter().map(|&i| replay.reserved[i].1 / ROUNDING)),
        },
        address: columns.delta(shown.iter().map(place)),
        source,
        segments: SegmentColumns {
            begin: columns.delta(layout.held.iter().map(|held| u64::from(held.begin))),
            end: columns.delta(layout.held.iter().map(|held| u64::from(held.end))),
            offset: columns.delta(layout.held.iter().map(|held| held.offset / ROUNDING)),
            size: columns.plain(layout.held.iter().map(|held| held.size / ROUNDING)),
        },
    }
}
