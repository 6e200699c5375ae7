//! The pictures of what fits: one page with a chart for each set of conditions, and the same values as tables.
//!
//! A page without scripts and without any reference to the outside. Who cannot see a chart has its table.

use std::fmt::Write;

use crate::page::escape;
use crate::words::bytes;

/// What is drawn across and up in one chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The conditions: a GPU, values of further variables.
    pub title: String,
    /// What changes from left to right.
    pub across: String,
    /// What is read upwards.
    pub up: String,
    /// Whether the points are bytes.
    pub is_bytes: bool,
    /// Whether values are bars, one below the other, in which the lines' points lie end to end.
    pub is_stacked: bool,
    /// The values across, from left to right.
    pub values: Vec<String>,
    /// A line for each allocator, or a part of each bar.
    pub lines: Vec<FrontierLine>,
    /// A line across the chart: what it is, and where.
    pub limit: Option<(String, f64)>,
}

/// The line of one allocator, or a part of each bar.
#[derive(Clone, Debug, PartialEq)]
pub struct FrontierLine {
    /// The allocator's name, or the part's.
    pub allocator: String,
    /// A point for each value across; none where nothing fits or nothing is known.
    pub points: Vec<Option<FrontierPoint>>,
}

/// A point of a line.
#[derive(Clone, Debug, PartialEq)]
pub struct FrontierPoint {
    /// How high it is.
    pub value: f64,
    /// The value in words.
    pub text: String,
}

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1f24;--muted:#5b656e;--rule:#e3e6e9;--page:#fff;--l0:#8a5a44;--l1:#5f6b76;--l2:#0b8070}\
@media(prefers-color-scheme:dark){:root{--ink:#e8eaed;--muted:#a3adb7;--rule:#343a40;--page:#15181b;--l0:#d39b82;--l1:#a9b4bf;--l2:#35c2ac}}\
body{margin:1.5rem;font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--page)}\
h1{font-size:1.4rem}h2{font-size:1.05rem;margin:0 0 .5rem}p{max-width:50rem}\
main{display:grid;gap:2rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr))}\
section{min-width:0;max-width:44rem}svg{display:block;width:100%;height:auto}svg text{font-size:13px;fill:var(--muted)}\
.rule{stroke:var(--rule)}.limit{stroke:var(--ink);stroke-dasharray:8 4}svg text.limits{fill:var(--ink)}\
.l0,.l1,.l2{fill:none;stroke:var(--l0);stroke-width:2}.l1{stroke:var(--l1);stroke-dasharray:6 3}.l2{stroke:var(--l2);stroke-width:4}\
.p0,.p1,.p2{fill:var(--l0);stroke:var(--page)}.p1{fill:var(--l1)}.p2{fill:var(--l2)}\
.scroll{overflow-x:auto}table{border-collapse:collapse;margin-top:.75rem;font-variant-numeric:tabular-nums}\
th,td{padding:.2rem .7rem .2rem 0;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}th:first-child{text-align:left}\
th svg{display:inline;width:34px;vertical-align:middle}main:has(.s0){grid-template-columns:minmax(0,1fr)}\
.s0{fill:#0072b2}.s1{fill:#56b4e9}.s2{fill:#8c8c8c}.s3{fill:#e69f00}.s4{fill:#009e73}.s5{fill:#cc79a7}.s6{fill:#d55e00}";

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 330.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 48.0;

/// From one bar to the next, and the letters of its name.
const BAR: f64 = 24.0;
const MOST_LETTERS: usize = 30;

/// Labels below a chart, at most.
const MOST_LABELS: usize = 10;

/// The page: a title, sentences about it, and the charts.
pub fn page(title: &str, about: &[String], charts: &[Chart]) -> String {
    let title = escape(title);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{title}</title><style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n"
    );
    // Writing to a string cannot fail.
    for sentence in about {
        let _ = writeln!(out, "<p>{}</p>", escape(sentence));
    }
    out.push_str("<main>\n");
    for (index, chart) in charts.iter().enumerate() {
        let _ =
            writeln!(out, "<section aria-labelledby=\"c{index}\"><h2 id=\"c{index}\">{}</h2>", escape(&chart.title));
        if chart.is_stacked {
            draw_bars(&mut out, chart)
        } else {
            draw(&mut out, chart)
        }
        table(&mut out, chart);
        out.push_str("</section>\n");
    }
    out.push_str("</main></body></html>\n");
    out
}

fn text(out: &mut String, x: f64, y: f64, more: &str, words: &str) {
    let _ = write!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" {more}>{}</text>", escape(words));
}

fn draw(out: &mut String, chart: &Chart) {
    let points = chart.lines.iter().flat_map(|line| &line.points).flatten().map(|point| point.value);
    let highest =
        points.chain(chart.limit.as_ref().map(|(_, at)| *at)).filter(|value| value.is_finite()).fold(0.0, f64::max);
    let ticks = ticks(highest, chart.is_bytes);
    let top = ticks.last().copied().unwrap_or(1.0).max(highest);
    let x = |index: usize| {
        let share = (index as f64 + 0.5) / chart.values.len().max(1) as f64;
        LEFT + share * (WIDTH - LEFT - RIGHT)
    };
    let y = |value: f64| TOP + (1.0 - (value / top).clamp(0.0, 1.0)) * (HEIGHT - TOP - BOTTOM);
    let words = escape(&format!("{} against {}; the table below has the values", chart.up, chart.across));
    let _ = write!(out, "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{words}\">");
    for tick in ticks {
        let _ = write!(out, "<path class=\"rule\" d=\"M{LEFT} {:.1}H{}\"/>", y(tick), WIDTH - RIGHT);
        let label = if chart.is_bytes { bytes(tick as u64) } else { tick.to_string() };
        text(out, LEFT - 8.0, y(tick) + 4.0, "text-anchor=\"end\"", &label);
    }
    let every = chart.values.len().div_ceil(MOST_LABELS).max(1);
    for (index, value) in chart.values.iter().enumerate().step_by(every) {
        text(out, x(index), HEIGHT - BOTTOM + 18.0, "text-anchor=\"middle\"", value);
    }
    text(out, LEFT, TOP - 14.0, "", &chart.up);
    text(out, WIDTH - RIGHT, HEIGHT - 8.0, "text-anchor=\"end\"", &chart.across);
    if let Some((name, at)) = &chart.limit {
        let _ = write!(out, "<path class=\"limit\" d=\"M{LEFT} {:.1}H{}\"/>", y(*at), WIDTH - RIGHT);
        text(out, WIDTH - RIGHT, y(*at) - 5.0, "class=\"limits\" text-anchor=\"end\"", name);
    }
    // The last first and widest, so that lines that lie on one another are all seen.
    for (index, line) in chart.lines.iter().enumerate().rev() {
        let mut path = String::new();
        let mut is_down = false;
        for (at, point) in line.points.iter().enumerate() {
            if let Some(point) = point {
                let _ = write!(path, "{}{:.1} {:.1}", if is_down { 'L' } else { 'M' }, x(at), y(point.value));
            }
            is_down = point.is_some();
        }
        let _ = write!(out, "<path class=\"l{index}\" d=\"{path}\"/>");
        for (at, point) in line.points.iter().enumerate() {
            let Some(point) = point else { continue };
            let size = [3.5, 5.0, 6.5][index.min(2)];
            let _ = write!(
                out,
                "<circle class=\"p{index}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"{size}\"/>",
                x(at),
                y(point.value)
            );
        }
    }
    out.push_str("</svg>\n");
}

/// A part of a bar with one holder's colour: `s0` to `s6`.
fn draw_bars(out: &mut String, chart: &Chart) {
    let part =
        |line: &FrontierLine, at: usize| line.points.get(at).and_then(Option::as_ref).map_or(0.0, |point| point.value);
    let sum = |at: usize| chart.lines.iter().map(|line| part(line, at)).sum::<f64>();
    let top = (0..chart.values.len()).map(sum).fold(1.0, f64::max);
    let names = chart.values.iter().map(|name| name.chars().count()).max().unwrap_or(0).min(MOST_LETTERS);
    let left = 8.0 + 8.0 * names as f64;
    let right = WIDTH - 80.0;
    let width = |bytes: f64| (bytes / top).clamp(0.0, 1.0) * (right - left);
    let height = TOP + BAR * chart.values.len() as f64;
    let words = escape(&format!("{} by {}; the table below has the values", chart.up, chart.across));
    let _ = write!(out, "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{words}\">");
    for (at, name) in chart.values.iter().enumerate() {
        let y = 4.0 + BAR * at as f64;
        let short: String = name.chars().take(MOST_LETTERS).collect();
        text(out, left - 6.0, y + 14.0, "text-anchor=\"end\"", &short);
        let mut x = left;
        for (index, line) in chart.lines.iter().enumerate() {
            let wide = width(part(line, at));
            let _ = write!(
                out,
                "<rect class=\"s{index}\" x=\"{x:.1}\" y=\"{y}\" width=\"{wide:.1}\" height=\"{}\"><title>{}</title></rect>",
                BAR - 5.0,
                escape(&line.allocator)
            );
            x += wide;
        }
        text(out, x + 5.0, y + 14.0, "", &bytes(sum(at) as u64));
    }
    if let Some((name, at)) = chart.limit.as_ref().filter(|(_, at)| *at <= top) {
        let x = left + width(*at);
        let _ = write!(out, "<path class=\"limit\" d=\"M{x:.1} 0V{}\"/>", height - TOP);
        text(out, x, height - 8.0, "class=\"limits\" text-anchor=\"middle\"", name);
    }
    out.push_str("</svg>\n");
}

fn table(out: &mut String, chart: &Chart) {
    let _ = write!(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{}\"><table><thead><tr><th scope=\"col\">{}</th>",
        escape(&chart.title),
        escape(&chart.across)
    );
    for (index, line) in chart.lines.iter().enumerate() {
        let sign = match chart.is_stacked {
            true => format!("<rect class=\"s{index}\" width=\"34\" height=\"8\"/>"),
            false => format!("<path class=\"l{index}\" d=\"M0 4H34\"/>"),
        };
        let sample = format!("<svg viewBox=\"0 0 34 8\" aria-hidden=\"true\">{sign}</svg>");
        let _ = write!(out, "<th scope=\"col\">{sample} {}</th>", escape(&line.allocator));
    }
    out.push_str("</tr></thead><tbody>\n");
    for (at, value) in chart.values.iter().enumerate() {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(value));
        for line in &chart.lines {
            let words = line.points.get(at).and_then(Option::as_ref).map_or("none", |point| &point.text);
            let _ = write!(out, "<td>{}</td>", escape(words));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

/// Even values from 0 to the first that is not below `highest`: three to seven of them.
fn ticks(highest: f64, is_bytes: bool) -> Vec<f64> {
    let highest = highest.max(1.0);
    let step = if is_bytes {
        2_f64.powf((highest / 4.0).max(1.0).log2().floor())
    } else {
        let unit = 10_f64.powf((highest / 5.0).max(1.0).log10().floor());
        [1.0, 2.0, 5.0, 10.0].map(|times| times * unit).into_iter().find(|step| highest / step <= 6.0).unwrap_or(unit)
    };
    let count = (highest / step).ceil().clamp(1.0, 16.0) as u32;
    (0..=count).map(|index| f64::from(index) * step).collect()
}

#[cfg(test)]
mod tests;
