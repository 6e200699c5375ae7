//! What is written: the page, the pictures, the snapshot.

use std::io::Read;

use base64::Engine;
use stalloc_trace::{SegmentAction, StackId};

use super::{Maker, input};
use crate::{Report, ReportInput};

const MIB: u64 = 1 << 20;
const EVIL: &str = "</script><img src=x onerror=alert(1)>__DATA__.py";

fn evil() -> ReportInput {
    let mut maker = Maker::new();
    let stack = maker.stack(EVIL, 1, "<b>f</b>");
    maker.segment(SegmentAction::Alloc, 2 * MIB, 20 * MIB);
    for i in 0..4 {
        maker.alloc(2 * MIB + i * MIB, MIB, stack);
    }
    maker.free(3 * MIB);
    input(EVIL, maker.trace())
}

/// The JSON part of a page's data.
fn data(html: &str) -> serde_json::Value {
    let start = html.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    let text = &html[start..start + html[start..].find('<').unwrap()];
    let packed = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
    let mut bytes = Vec::new();
    flate2::read::ZlibDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
    let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
    serde_json::from_slice(&bytes[4..4 + length]).unwrap()
}

#[test]
fn the_page_holds_the_same_figures_as_the_report() {
    let inputs = [evil(), evil()];
    let report = Report::new(&inputs);
    let page = data(&report.html().unwrap());
    assert_eq!(page["figures"], serde_json::to_value(report.figures()).unwrap());
    assert_eq!(report.figures().comparisons.len(), 1);
    assert!(page["strings"].as_array().unwrap().iter().any(|text| text == EVIL));
}

#[test]
fn devices_of_the_same_number_are_compared() {
    let with = |devices: [u32; 2]| {
        let mut input = evil();
        let mut other = input.devices[0].clone();
        (input.devices[0].trace.device, other.trace.device) = (devices[0], devices[1]);
        input.devices.push(other);
        input
    };
    let compared = |inputs: &[ReportInput]| -> Vec<(usize, usize, usize)> {
        let report = Report::new(inputs);
        let comparisons = report.figures().comparisons.iter();
        comparisons.map(|one| (one.before.device, one.after.input, one.after.device)).collect()
    };
    assert_eq!(compared(&[with([0, 1]), with([1, 0]), with([1, 2])]), [(0, 1, 1), (1, 1, 0), (1, 2, 0)]);
    // Ranks on machines of their own have numbers of their own.
    assert_eq!(compared(&[with([0, 1]), with([4, 5])]), [(0, 1, 0)]);
}

#[test]
fn a_name_cannot_become_markup_anywhere() {
    let inputs = [evil()];
    let report = Report::new(&inputs);
    for text in [report.html().unwrap(), report.svg().unwrap()] {
        assert!(!text.contains("<img"), "{}", &text[..300]);
    }
}

#[test]
fn an_input_without_devices_still_makes_a_page() {
    let inputs =
        [ReportInput { name: "empty".into(), format: "none".into(), warnings: Vec::new(), devices: Vec::new() }];
    let report = Report::new(&inputs);
    assert!(data(&report.html().unwrap())["devices"][0].as_array().unwrap().is_empty());
    assert!(report.svg().is_err() && report.png().is_err() && report.snapshot().is_err());
}

#[test]
fn the_snapshot_of_a_plan_reads_back_as_the_same_requests() {
    let inputs = [evil()];
    let report = Report::new(&inputs);
    let stalloc_trace::Input::Recording(back) =
        stalloc_trace::read_bytes(&report.snapshot().unwrap(), 1 << 30).unwrap()
    else {
        panic!("not a recording")
    };
    let (before, after) = (&inputs[0].devices[0].trace, &back.traces[0]);
    let sizes = |trace: &stalloc_trace::Trace| trace.requests.iter().map(|r| r.size).collect::<Vec<_>>();
    assert_eq!(sizes(before), sizes(after));
    let plan = report.figures().inputs[0].devices[0].allocators.iter().find(|one| one.allocator == "stalloc").unwrap();
    assert_eq!(after.peak_allocated(), plan.peak_allocated);
    assert_eq!(after.peak_reserved(), Some(plan.peak_reserved));
    let file = after.stacks.get(after.requests[0].stack)[0].file;
    assert_eq!(after.string(file), EVIL);
}

#[test]
fn pictures_show_both_maps_and_are_deterministic() {
    let inputs = [evil()];
    let report = Report::new(&inputs);
    let svg = report.svg().unwrap();
    assert_eq!(svg.matches("<image").count(), 2);
    assert_eq!(svg, report.svg().unwrap());
    assert_eq!(&report.png().unwrap()[..8], b"\x89PNG\r\n\x1a\n");
}

#[test]
fn the_smallest_and_shortest_lived_blocks_are_left_out_first() {
    let mut maker = Maker::new();
    maker.alloc(1, 64 * MIB, StackId::NONE);
    for i in 0..20 {
        maker.alloc(1000 + i, 512, StackId::NONE);
        maker.free(1000 + i);
    }
    let trace = maker.trace();
    let shown = crate::page::shown_requests(&trace, 5);
    assert_eq!(shown.len(), 5);
    assert_eq!(shown[0].0, 0);
    assert!(shown.is_sorted());
}
