use super::*;

fn chart() -> Chart {
    let point = |value: f64| Some(FrontierPoint { value, text: format!("{value} or more") });
    Chart {
        title: "<h100> & LEN=\"1\"".to_owned(),
        across: "SEQ".to_owned(),
        up: "the largest MB".to_owned(),
        is_bytes: false,
        is_stacked: false,
        values: vec!["1024".to_owned(), "</script><b>".to_owned(), "4096".to_owned()],
        lines: vec![
            FrontierLine { allocator: "pytorch".to_owned(), points: vec![point(8.0), None, point(2.0)] },
            FrontierLine { allocator: "stalloc".to_owned(), points: vec![point(12.0), point(6.0)] },
        ],
        limit: None,
    }
}

#[test]
fn a_chart_has_its_lines_and_its_values_as_a_table() {
    let page = page("What <fits>", &["One & two.".to_owned()], &[chart()]);
    assert!(page.contains("What &lt;fits&gt;") && page.contains("One &amp; two.") && !page.contains("<b>"));
    assert!(page.contains("&lt;/script&gt;"));
    // Twelve is at the top, nothing breaks a line, and a point that is missing is said.
    let paths: Vec<&str> =
        page.split("class=\"l0\" d=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(paths[0].matches('M').count(), 2, "{paths:?}");
    assert_eq!(page.matches("<td>none</td>").count(), 2);
    assert_eq!(page.matches("<circle").count(), 4);
    assert!(page.contains("<td>12 or more</td>"));
    assert!(!page.contains("http"), "no reference to the outside");
}

#[test]
fn stacked_points_lie_end_to_end_and_their_sums_are_said() {
    let page = page("", &[], &[Chart { is_stacked: true, limit: Some(("the card".to_owned(), 10.0)), ..chart() }]);
    let rects: Vec<(f64, f64)> = page
        .split("<rect class=\"s")
        .skip(1)
        .filter(|rect| rect.contains(" y="))
        .map(|rect| {
            let number = |name: &str| rect.split(name).nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
            (number(" x=\""), number(" width=\""))
        })
        .collect();
    let [(first, eight), (second, twelve), (_, none), (_, six), (_, two), (_, missing)] = rects[..] else {
        panic!("{rects:?}")
    };
    assert!((first + eight - second).abs() < 0.11 && (eight / twelve - 8.0 / 12.0).abs() < 0.01, "{rects:?}");
    assert!((none, missing) == (0.0, 0.0) && (six / two - 3.0).abs() < 0.01, "{rects:?}");
    assert!(
        page.contains(">20 B</text>") && page.contains(">the card</text>") && page.contains("<title>stalloc</title>")
    );
}

#[test]
fn what_is_empty_or_without_measure_is_drawn_too() {
    let empty = Chart { values: vec![], lines: vec![], ..chart() };
    let endless = FrontierPoint { value: f64::INFINITY, text: "?".to_owned() };
    let odd = Chart {
        lines: vec![FrontierLine { allocator: "x".to_owned(), points: vec![Some(endless), None, None] }],
        limit: Some(("80 GiB".to_owned(), 80.0)),
        ..chart()
    };
    let page = page("", &[], &[empty, odd]);
    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
}

#[test]
fn ticks_are_even_and_reach_the_highest() {
    assert_eq!(ticks(12.0, false), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
    assert_eq!(ticks(3.0, false), [0.0, 1.0, 2.0, 3.0]);
    let gib = f64::from(1 << 30);
    assert_eq!(ticks(80.0 * gib, true).last(), Some(&(80.0 * gib)));
    for highest in [0.0, 1.0, 7.0, 99.0, 1e6, 1e18] {
        for is_bytes in [false, true] {
            let ticks = ticks(highest, is_bytes);
            assert!((2..=9).contains(&ticks.len()), "{highest}: {ticks:?}");
            assert!(*ticks.last().unwrap() >= highest);
        }
    }
}
