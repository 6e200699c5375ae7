//! The two main pictures, for a paper, an issue or a slide: live and reserved bytes over time, and the maps of what
//! happened and of the plan. Figures and colours are the page's.

mod map;
mod png;
mod svg;

pub use png::png;
pub use svg::svg;

use crate::device::{Analysis, Mapped};

/// Width and height of the picture, in its own units (PNG: two pixels each).
const SIZE: (f64, f64) = (1200.0, 800.0);

/// Pixels for each unit of an embedded map and of a PNG.
const SCALE: u32 = 2;

const INK: &str = "#1b1f24";
const MUTED: &str = "#667079";
const RULE: &str = "#e3e6e9";
const LIVE: &str = "#d5dbe1";

/// Colours of blocks by how they were placed (online, planned, dynamic, fallback), and of what is held and empty.
const BLOCKS: [[u8; 3]; 4] = [[0x87, 0x96, 0xa5], [0x0b, 0x80, 0x70], [0x5b, 0x8f, 0xd6], [0xd4, 0x9a, 0x1f]];
const WASTE: [u8; 3] = [0xf7, 0xcf, 0xc5];

/// The colour and dashes of an allocator's curve.
fn stroke(allocator: &str) -> (&'static str, &'static str) {
    match allocator {
        "actual" => (INK, "none"),
        "stalloc" => ("#0b8070", "none"),
        "pytorch" => ("#8a5a44", "none"),
        "pytorch-expandable" => ("#7d8893", "6 3"),
        _ => ("#a9a2c0", "2 3"),
    }
}

/// A place for a map, in the picture's units.
#[derive(Clone, Copy)]
struct MapFrame {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

/// The maps that are drawn: what the rest is measured against, and the plan's.
fn shown<'m>(analysis: &'m Analysis<'_>) -> Vec<(&'m Mapped, MapFrame)> {
    let find = |name: &str| analysis.mapped.iter().find(|one| one.replay.allocator == name);
    let before = find(crate::actual::ACTUAL).or(find("pytorch")).or(analysis.mapped.first());
    let plan = find("stalloc").filter(|plan| before.is_none_or(|one| one.replay.allocator != plan.replay.allocator));
    let maps: Vec<&Mapped> = before.into_iter().chain(plan).collect();
    let (left, gap) = (80.0, 30.0);
    let room = SIZE.0 - left - 20.0;
    let width = (room - gap * (maps.len().max(1) - 1) as f64) / maps.len().max(1) as f64;
    let frame = |i: usize| MapFrame { left: left + i as f64 * (width + gap), top: 455.0, width, height: 310.0 };
    maps.into_iter().enumerate().map(|(i, map)| (map, frame(i))).collect()
}

/// The top of the maps' common address axis, bytes.
fn height(analysis: &Analysis<'_>) -> u64 {
    shown(analysis).iter().map(|(map, _)| map.layout.height).max().unwrap_or(0).max(1)
}
