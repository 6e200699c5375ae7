//! The pictures as one SVG; maps are embedded as images, since a path for each block would be megabytes.

use std::fmt::Write;

use base64::Engine;

use super::{BLOCKS, INK, LIVE, MUTED, MapFrame, RULE, SCALE, SIZE, WASTE, height, map, shown, stroke};
use crate::Error;
use crate::device::Analysis;
use crate::page::escape;
use crate::words::bytes;

const CURVES: MapFrame = MapFrame { left: 80.0, top: 135.0, width: SIZE.0 - 100.0, height: 230.0 };

/// The pictures of a device of an input of some name.
///
/// # Errors
/// If a map cannot be compressed.
pub fn svg(name: &str, analysis: &Analysis<'_>) -> Result<String, Error> {
    let mut out = String::new();
    let (width, height) = SIZE;
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"system-ui, sans-serif\" font-size=\"13\">\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>"
    );
    text(&mut out, 20.0, 42.0, INK, "font-size=\"22\" font-weight=\"600\"", &analysis.figures.headline);
    text(&mut out, 20.0, 66.0, MUTED, "", name);
    curves(&mut out, analysis);
    maps(&mut out, analysis)?;
    out.push_str("</svg>\n");
    Ok(out)
}

fn text(out: &mut String, x: f64, y: f64, colour: &str, more: &str, words: &str) {
    let _ = write!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{colour}\" {more}>{}</text>", escape(words));
}

/// Levels for an axis up to `top` bytes: powers of two, at most eight.
fn levels(top: u64) -> impl Iterator<Item = u64> {
    let step = (top / 4).max(1).next_power_of_two() / 2;
    (0..=8u64).map(move |i| i * step.max(1)).filter(move |&at| at <= top)
}

fn axis(out: &mut String, frame: MapFrame, top: u64) {
    for level in levels(top) {
        let y = frame.top + frame.height * (1.0 - level as f64 / top as f64);
        let _ =
            write!(out, "<path d=\"M{:.1} {y:.1}h{:.1}\" stroke=\"{RULE}\" fill=\"none\"/>", frame.left, frame.width);
        text(out, frame.left - 8.0, y + 4.0, MUTED, "text-anchor=\"end\"", &bytes(level));
    }
}

fn curves(out: &mut String, analysis: &Analysis<'_>) {
    let peak = |points: &[(u32, u64)]| points.iter().map(|&(_, bytes)| bytes).max().unwrap_or(0);
    let live = &analysis.live.total;
    let top = analysis.mapped.iter().map(|one| peak(&one.replay.reserved)).max().unwrap_or(0).max(peak(live)).max(1);
    let top = top + top / 20;
    axis(out, CURVES, top);
    let end = analysis.trace.end().max(1);
    let path = outline(live, end, top);
    let base = CURVES.top + CURVES.height;
    let _ = write!(
        out,
        "<path d=\"M{} {base}L{path}L{} {base}Z\" fill=\"{LIVE}\"/>",
        CURVES.left,
        CURVES.left + CURVES.width
    );
    for one in &analysis.mapped {
        let (colour, dashes) = stroke(one.replay.allocator);
        let _ = write!(
            out,
            "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>",
            outline(&one.replay.reserved, end, top)
        );
    }
    let mut x = CURVES.left;
    let y = CURVES.top - 18.0;
    let mut entry = |out: &mut String, swatch: String, label: &str| {
        out.push_str(&swatch);
        text(out, x + 24.0, y + 4.0, INK, "", label);
        x += 44.0 + 7.2 * label.chars().count() as f64;
        x
    };
    let square = |x: f64, colour: &str| {
        format!("<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"18\" height=\"10\" fill=\"{colour}\"/>", y - 5.0)
    };
    let mut at = entry(out, square(CURVES.left, LIVE), "allocated; reserved by:");
    for one in &analysis.figures.allocators {
        let (colour, dashes) = stroke(one.allocator);
        let line = format!(
            "<path d=\"M{at:.1} {y:.1}h18\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>"
        );
        at = entry(out, line, &format!("{} {}", one.label, bytes(one.peak_reserved)));
    }
}

/// Points of a step function, the highest and the lowest value of each unit of width.
fn outline(points: &[(u32, u64)], end: u32, top: u64) -> String {
    let columns = CURVES.width as u64;
    let mut out = String::new();
    let mut last = points.first().map_or(0, |&(_, bytes)| bytes);
    let mut next = 0;
    for column in 0..columns {
        let until = (column + 1) * u64::from(end) / columns;
        let (mut high, mut low) = (last, last);
        while let Some(&(time, bytes)) = points.get(next).filter(|&&(time, _)| u64::from(time) < until) {
            let _ = time;
            last = bytes;
            high = high.max(bytes);
            low = low.min(bytes);
            next += 1;
        }
        let x = CURVES.left + column as f64;
        let y = |bytes: u64| CURVES.top + CURVES.height * (1.0 - bytes as f64 / top as f64);
        let _ = write!(out, "{x:.0} {:.1} ", y(high));
        if low != high {
            let _ = write!(out, "{x:.0} {:.1} ", y(low));
        }
    }
    out
}

fn maps(out: &mut String, analysis: &Analysis<'_>) -> Result<(), Error> {
    let top = height(analysis);
    for (index, (mapped, frame)) in shown(analysis).into_iter().enumerate() {
        let figures = analysis.figures.allocators.iter().find(|one| one.allocator == mapped.replay.allocator);
        if index == 0 {
            axis(out, frame, top);
        }
        let (width, height) = (frame.width as u32 * SCALE, frame.height as u32 * SCALE);
        let image = png_of(&map::paint(analysis.trace, mapped, top, width, height))?;
        let _ = write!(
            out,
            "<image x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" preserveAspectRatio=\"none\" \
             href=\"data:image/png;base64,{}\"/>",
            frame.left,
            frame.top,
            frame.width,
            frame.height,
            base64::engine::general_purpose::STANDARD.encode(image)
        );
        let _ = write!(
            out,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"none\" stroke=\"{RULE}\"/>",
            frame.left, frame.top, frame.width, frame.height
        );
        if let Some(figures) = figures {
            let words = format!(
                "{}: {} reserved, {} wasted",
                figures.label,
                bytes(figures.peak_reserved),
                bytes(figures.wasted)
            );
            text(out, frame.left, frame.top - 10.0, INK, "font-size=\"15\" font-weight=\"600\"", &words);
        }
    }
    let mut x = CURVES.left;
    for (colour, label) in BLOCKS
        .into_iter()
        .zip(["placed online", "planned", "lowest fit", "fallback"])
        .chain([(WASTE, "reserved but empty")])
    {
        let [r, g, b] = colour;
        let _ =
            write!(out, "<rect x=\"{x:.1}\" y=\"780\" width=\"12\" height=\"10\" fill=\"#{r:02x}{g:02x}{b:02x}\"/>");
        text(out, x + 18.0, 790.0, MUTED, "", label);
        x += 44.0 + 7.0 * label.len() as f64;
    }
    text(out, SIZE.0 - 20.0, 790.0, MUTED, "text-anchor=\"end\"", "address against time (events)");
    Ok(())
}

fn png_of(image: &map::Image) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    let mut encoder = ::png::Encoder::new(&mut out, image.width, image.height);
    encoder.set_color(::png::ColorType::Rgb);
    encoder.set_depth(::png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&image.rgb)?;
    writer.finish()?;
    Ok(out)
}
