//! A map as pixels: every block counts with the exact share of each pixel that it covers.

use stalloc_simulator::PlacedBy;
use stalloc_trace::Trace;

use super::{BLOCKS, WASTE};
use crate::device::Mapped;

/// An image, 8-bit RGB, rows from the top.
pub struct Image {
    pub width: u32,
    pub height: u32,
    pub rgb: Vec<u8>,
}

/// Sums of colour and coverage for each pixel.
struct Canvas {
    width: usize,
    height: usize,
    sums: Vec<[f32; 4]>,
}

impl Canvas {
    fn new(width: u32, height: u32) -> Self {
        let (width, height) = (width as usize, height as usize);
        Canvas { width, height, sums: vec![[0.0; 4]; width * height] }
    }

    /// Adds a colour over a rectangle given in pixels.
    fn fill(&mut self, x: (f64, f64), y: (f64, f64), colour: [u8; 3]) {
        let (left, right) = (x.0.max(0.0), x.1.min(self.width as f64));
        let (top, bottom) = (y.0.max(0.0), y.1.min(self.height as f64));
        if right <= left || bottom <= top {
            return;
        }
        for row in top as usize..(bottom.ceil() as usize).min(self.height) {
            let down = bottom.min(row as f64 + 1.0) - top.max(row as f64);
            for column in left as usize..(right.ceil() as usize).min(self.width) {
                let across = right.min(column as f64 + 1.0) - left.max(column as f64);
                let share = (down * across) as f32;
                let sum = &mut self.sums[row * self.width + column];
                for (channel, value) in colour.into_iter().enumerate() {
                    sum[channel] += f32::from(value) * share;
                }
                sum[3] += share;
            }
        }
    }
}

/// Paints a replay's map, with addresses from 0 to `top` bytes. O(blocks + pixels).
pub fn paint(trace: &Trace, mapped: &Mapped, top: u64, width: u32, height: u32) -> Image {
    let (mut blocks, mut held) = (Canvas::new(width, height), Canvas::new(width, height));
    let across = f64::from(width) / f64::from(trace.end().max(1));
    let up = f64::from(height) / top as f64;
    let x = |begin: u32, end: u32| (f64::from(begin) * across, f64::from(end) * across);
    let y = |low: u64, size: u64| (f64::from(height) - (low + size) as f64 * up, f64::from(height) - low as f64 * up);
    for part in &mapped.layout.held {
        held.fill(x(part.begin, part.end), y(part.offset, part.size), [0; 3]);
    }
    for placement in &mapped.replay.placements {
        let request = trace.request(placement.request);
        let Some(place) = mapped.layout.places[placement.request.index()] else { continue };
        let lifetime = trace.lifetime(request);
        let colour = BLOCKS[match placement.source {
            PlacedBy::Online => 0,
            PlacedBy::Planned => 1,
            PlacedBy::BestFit => 2,
            PlacedBy::Fallback => 3,
        }];
        blocks.fill(x(lifetime.start, lifetime.end.max(lifetime.start + 1)), y(place, request.rounded()), colour);
    }
    let mut rgb = Vec::with_capacity(blocks.sums.len() * 3);
    for (block, held) in blocks.sums.iter().zip(&held.sums) {
        let live = block[3].min(1.0);
        let scale = if block[3] > 0.0 { live / block[3] } else { 0.0 };
        let empty = (held[3].min(1.0) - live).max(0.0);
        for channel in 0..3 {
            let value = block[channel] * scale + f32::from(WASTE[channel]) * empty + 255.0 * (1.0 - live - empty);
            rgb.push(value.round() as u8);
        }
    }
    Image { width, height, rgb }
}
