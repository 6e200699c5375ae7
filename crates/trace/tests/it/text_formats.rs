//! DSA instances and the logs of the paper's artifact.

use stalloc_trace::{
    Event, Fault, FilePosition, Format, Gap, Input, InstanceRow, InstanceTable, Mark, Trace, open, read_bytes,
};

const LIMIT: u64 = 64 << 20;

fn instance(text: &str) -> InstanceTable {
    match read_bytes(text.as_bytes(), LIMIT).unwrap() {
        Input::Instance(instance) => instance,
        Input::Recording(_) => panic!("a recording"),
    }
}

fn log(text: &str) -> Trace {
    match read_bytes(text.as_bytes(), LIMIT).unwrap() {
        Input::Recording(mut recording) => {
            assert_eq!(recording.format, Format::PaperLog);
            recording.traces.remove(0)
        }
        Input::Instance(_) => panic!("an instance"),
    }
}

fn refused(text: &str) -> Fault {
    read_bytes(text.as_bytes(), LIMIT).unwrap_err()
}

#[test]
fn columns_come_in_any_order_and_rows_are_written_in_the_order_of_the_file() {
    let read = instance("# made by hand\n size , id,upper,lower,alignment\n100,b,7,3,4\n 50,a,5,0,\n");
    assert_eq!(read.rows.len(), 2);
    assert_eq!((&*read.rows[0].id, read.rows[0].lower, read.rows[0].upper), ("b", 3, 7));
    assert_eq!((read.rows[0].alignment, read.rows[1].alignment), (4, 1));
    assert_eq!(read.lower_bound(), 150);
    let mut out = Vec::new();
    read.write(&mut out, &[0, 100]).unwrap();
    assert_eq!(
        String::from_utf8(out.clone()).unwrap(),
        "size,id,upper,lower,alignment,offset\n100,b,7,3,4,0\n50,a,5,0,1,100\n"
    );
    let again = instance(&String::from_utf8(out).unwrap());
    assert_eq!(again.rows[1].offset, Some(100));
    assert!(read.write(&mut Vec::new(), &[0]).is_err());
}

#[test]
fn a_buffer_that_ends_when_another_begins_does_not_add_to_its_load() {
    assert_eq!(instance("id,lower,upper,size\n0,0,5,10\n1,5,9,10\n").lower_bound(), 10);
    assert_eq!(instance("id,lower,upper,size\n0,0,5,18446744073709551615\n1,4,9,10\n").lower_bound(), u64::MAX);
}

#[test]
fn a_buffer_takes_nothing_or_a_part_of_its_bytes_in_its_gaps() {
    let gap = |lower, upper, window| Gap { lower, upper, window };
    let row = |gaps| InstanceRow { id: "a".into(), lower: 0, upper: 10, size: 100, alignment: 1, gaps, offset: None };
    let gaps = vec![gap(5, 7, Some((10, 20))), gap(2, 3, None)];
    assert_eq!(row(gaps).pieces(), [(0, 2, 0, 100), (3, 5, 0, 100), (5, 7, 10, 20), (7, 10, 0, 100)]);
    let at_the_ends = vec![gap(0, 2, None), gap(8, 10, Some((30, 30)))];
    assert_eq!(row(at_the_ends).pieces(), [(2, 8, 0, 100)]);
    assert_eq!(row(Vec::new()).pieces(), [(0, 10, 0, 100)]);
    // Another buffer fits into a gap: at 5 both live, and the first one needs ten bytes.
    let other = InstanceRow { lower: 5, upper: 7, size: 95, ..row(Vec::new()) };
    assert_eq!(InstanceTable::new(vec![row(vec![gap(5, 7, Some((10, 20)))]), other.clone()]).lower_bound(), 105);
    assert_eq!(InstanceTable::new(vec![row(Vec::new()), other]).lower_bound(), 195);
}

#[test]
fn a_header_is_known_after_blank_lines_comments_and_a_byte_order_mark() {
    for before in ["", "\n \n", "# made by hand\n", "\u{FEFF}", "\u{FEFF}\n# a comment\n\n"] {
        assert_eq!(instance(&format!("{before}id,lower,upper,size\na,0,5,512\n")).rows.len(), 1, "{before:?}");
    }
    // Two of the three columns make a header, which then says what is missing.
    assert!(refused("id,lower,upper\na,0,5\n").to_string().contains("no column \"size\""));
    assert!(refused("lower,upper\n0,5\n").to_string().contains("no known format"), "two columns are too few");
}

#[test]
fn columns_of_minimalloc_mean_what_they_mean_there() {
    // Its `end` is the last instant of a lifetime, and so is that of a gap.
    let text = "buffer,start,end,size,gaps,offset,colour\n0,0,4,10,2-3@5:7,0,red\n1,4,9,6,,20,blue\n";
    let read = instance(text);
    assert_eq!((read.rows[0].lower, read.rows[0].upper, read.rows[1].lower), (0, 5, 4));
    assert_eq!(read.rows[0].pieces(), [(0, 2, 0, 10), (2, 4, 5, 7), (4, 5, 0, 10)]);
    assert_eq!((read.rows[1].offset, read.lower_bound()), (Some(20), 16));
    assert!(read.warnings.iter().any(|warning| warning.contains("\"colour\"")), "{:?}", read.warnings);
    assert!(read.warnings.iter().any(|warning| warning.contains("last instant")), "{:?}", read.warnings);
    let mut out = Vec::new();
    read.write(&mut out, &[3, 20]).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "id,lower,end,size,gaps,offset\n0,0,4,10,2-3@5:7,3\n1,4,9,6,,20\n");
    // Ours are half-open, gaps as well.
    let ours = instance("id,lower,upper,size,gaps\n0,0,5,10,0-2 4-5\n");
    assert_eq!(ours.rows[0].pieces(), [(2, 4, 0, 10)]);
    let bad = ["3-2", "0-9", "1-3 2-4", "1-2@3:11", "1-2@4:3", "1", "1-x", "1-2@3"];
    for gaps in bad {
        refused(&format!("id,lower,upper,size,gaps\n0,0,5,10,{gaps}\n"));
    }
    refused("id,lower,upper,end,size\n0,0,5,5,10\n");
    refused("id,lower,end,size\n0,0,18446744073709551615,10\n");
    assert_eq!(instance("id,lower,end,size\n0,7,7,10\n").rows[0].upper, 8);
}

#[test]
fn what_is_wrong_with_an_instance_is_said_with_its_line() {
    let line = |text: &str| match refused(text).position {
        FilePosition::Line(line) => line,
        other => panic!("{other:?}"),
    };
    assert_eq!(line("id,lower,upper,size\n0,0,5,10\n1,0,5,-3\n"), 3);
    assert_eq!(line("id,lower,upper,size\n0,0,5,NaN\n"), 2);
    assert_eq!(line("id,lower,upper,size\n0,0,5,1e3\n"), 2);
    assert_eq!(line("id,lower,upper,size\n\n0,0,5\n"), 3);
    assert_eq!(line("id,lower,upper,size\n0,0,5,1,1\n"), 2);
    assert_eq!(line("id,lower,upper,size\n0,5,5,1\n"), 2);
    assert_eq!(line("id,lower,upper,size,alignment\n0,1,5,1,0\n"), 2);
    assert_eq!(line("id,lower,upper,size,size\n0,1,5,1,0\n"), 1);
    assert_eq!(line("id,lower,upper\n0,1,5\n"), 1);
    assert_eq!(line("id,lower,upper,size\n0,0,5,99999999999999999999\n"), 2);
}

#[test]
fn a_line_of_an_instance_may_have_a_mebibyte_and_no_byte_more() {
    let with = |line: usize, end: &str| format!("id,lower,upper,size\n0,0,5,10\n{},0,5,10{end}", "a".repeat(line - 7));
    for end in ["", "\n", "\n1,0,5,10"] {
        let read = instance(&with(1 << 20, end));
        assert_eq!(read.rows[1].id.len(), (1 << 20) - 7, "{end:?}");
    }
    assert!(refused(&with((1 << 20) + 1, "")).to_string().contains("a line of over 1048576 bytes"));
    // However many lines there are.
    assert_eq!(instance(&format!("id,lower,upper,size\n{}", "0,0,5,10\n".repeat(200_000))).rows.len(), 200_000);
}

#[test]
#[ignore = "needs real recordings: STALLOC_RECORDINGS=FOLDER"]
fn real_instances_are_read() {
    for path in crate::common::real("dsa") {
        let Input::Instance(instance) = open(&path, &mut |_, _| {}).unwrap() else { panic!("{}", path.display()) };
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(instance.rows.len(), text.trim().lines().count() - 1);
        assert!(instance.lower_bound() > 0);
    }
}

const LOG: &str = "\
# torch 2.1
1 0x7f0000000000 1024 0

Iteration Index : 0
micro-batch : F
decoder.layers.0.mlp->MoELayer Layer : F-start
1 0x7f0000001000 2048 0x5581
token_permutation : F-start
token_permutation : F-end
decoder.layers.0.mlp->MoELayer Layer : F-end
micro-batch : F
micro-batch : B
0 0x7f0000001000 2048 0x5581
Iteration Index : end
0 0x7f0000000000 1024 0
";

#[test]
fn a_log_gives_requests_steps_phases_and_modules() {
    let trace = log(LOG);
    assert_eq!(trace.requests.len(), 2);
    assert_eq!(trace.streams, [0, 0x5581]);
    assert_eq!(trace.peak_allocated(), 3072);
    let marks: Vec<String> = trace
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Mark(Mark::StepBegin) => Some("step".to_owned()),
            Event::Mark(Mark::StepEnd) => Some("/step".to_owned()),
            Event::Mark(Mark::Phase { kind, micro_batch }) => Some(format!("{} {micro_batch}", trace.string(*kind))),
            Event::Mark(Mark::ModuleEnter(name)) => Some(format!("<{}>", trace.string(*name))),
            Event::Mark(Mark::ModuleExit(name)) => Some(format!("</{}>", trace.string(*name))),
            _ => None,
        })
        .collect();
    let expected = [
        "step",
        "forward 0",
        "<decoder.layers.0.mlp->MoELayer>",
        "<token_permutation>",
        "</token_permutation>",
        "</decoder.layers.0.mlp->MoELayer>",
        "forward 1",
        "backward 0",
        "/step",
    ];
    assert_eq!(marks, expected);
    assert!(trace.requests.iter().all(|r| r.free_completed.is_some()));
}

#[test]
fn an_address_that_is_handed_out_again_has_been_freed() {
    let trace = log("1 0x1000 512 0\n1 0x1000 512 0\n0 0x1000 512 0\n0 0x9000 512 0\n");
    assert_eq!(trace.requests[0].free_completed, Some(2));
    assert_eq!(trace.requests[1].alloc, Some(3));
    assert_eq!(trace.peak_allocated(), 512);
}

#[test]
fn frees_that_nothing_is_known_of_and_null_pointers_are_dropped_and_counted() {
    let read = |text: &str| match read_bytes(text.as_bytes(), LIMIT).unwrap() {
        Input::Recording(recording) => recording,
        Input::Instance(_) => panic!("an instance"),
    };
    let odd =
        read("1 0x1000 512 0\n0 0x9000 512 0\n0 0x0 512 0\n0 0x9000 512 0\n1 0x0 8 0\n0 0x0 8 0\n0 0x1000 512 0\n");
    assert_eq!(
        odd.warnings,
        ["3 lines with a null pointer were dropped.", "2 frees of unknown addresses were dropped."]
    );
    assert_eq!(odd.traces[0].events.len(), 3);
    assert_eq!(read(LOG).warnings, Vec::<String>::new());
}

#[test]
fn what_is_wrong_with_a_log_is_said_with_its_line() {
    for (text, at) in [
        ("1 0x10 5 0\n1 0x20 -5 0\n", 2),
        ("1 0x10 5 0\nnonsense\n", 2),
        ("1 0x10 5 0\n\n1 zz 5 0\n", 3),
        ("1 0x10 5 0\n1 0xffffffffffffffff 1152921504606846976 0\n", 2),
    ] {
        assert_eq!(refused(text).position, FilePosition::Line(at), "{text:?}");
    }
}

#[test]
fn a_file_of_no_known_format_is_told_what_is_known() {
    for text in ["hello\n", "\0\0\0", "#\n#\n"] {
        assert!(refused(text).to_string().contains("known"), "{text:?}");
    }
    let json = refused("{\"a\": 1}").to_string();
    assert!(json.contains("JSON") && json.contains("_snapshot"), "the file to make is named: {json}");
    assert!(refused("").to_string().contains("empty"));
    assert!(refused("PK\x03\x04....").to_string().contains("zip"));
}
