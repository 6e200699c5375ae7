use super::*;

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn variables(texts: &[&str]) -> Vec<Variable> {
    texts.iter().map(|text| Variable::parse(text).unwrap()).collect()
}

#[test]
fn ranges_and_lists_are_read() {
    let values = |text: &str| Variable::parse(text).unwrap().values;
    assert_eq!(values("N=1..64"), Values::Range { first: 1, step: 1, count: 64 });
    assert_eq!(values("N=1024..4096:1024"), Values::Range { first: 1024, step: 1024, count: 4 });
    assert_eq!(values("N=10..27:8"), Values::Range { first: 10, step: 8, count: 3 });
    assert_eq!(values("N=5..5"), Values::Range { first: 5, step: 1, count: 1 });
    assert_eq!(values("N=full,selective"), Values::List(vec!["full".into(), "selective".into()]));
    assert_eq!(values("N=--flag=1"), Values::List(vec!["--flag=1".into()]));
    assert_eq!(Variable::at(10, 8, 2), 26);
}

#[test]
fn invalid_values_are_told() {
    for (text, what) in [
        ("N", "there is no ="),
        ("=1..2", "a name has"),
        ("1N=1..2", "a name has"),
        ("N=1..", "'' is no whole number"),
        ("N=a..b", "'a' is no whole number"),
        ("N=9..1", "1 comes before 9"),
        ("N=1..9:0", "step is less than 1"),
        ("N=1,,2", "a value is empty"),
        ("N=1,2,1", "1 is there twice"),
        ("N=0..9223372036854775807", "too long"),
    ] {
        let message = Variable::parse(text).unwrap_err().to_string();
        assert!(message.contains(what) && message.contains("NAME=A..B"), "{text}: {message}");
    }
}

#[test]
fn names_in_the_command_and_variables_belong_together() {
    let command = words(&["train.py", "--mb={MB}", "--json", "{\"x\": {1}}", "{{SHELL}}"]);
    assert!(check(&variables(&["MB=1..4"]), &command, None).is_ok());
    let message = |texts: &[&str]| check(&variables(texts), &command, None).unwrap_err().to_string();
    assert!(message(&["MB=1..4", "SEQ=1,2"]).contains("{SEQ} is nowhere in the command"));
    assert!(message(&[]).contains("--vary MB="), "{}", message(&[]));
    let two = words(&["{A}", "{B}"]);
    let message = check(&variables(&["A=1..4", "B=1..4"]), &two, None).unwrap_err().to_string();
    assert!(message.contains("A and B"), "{message}");
    assert!(check(&variables(&["A=1", "A=2"]), &two, None).is_err());
    let size: WorldSize = "{A}x{C}".parse().unwrap();
    assert!(check(&variables(&["A=1", "B=1..2", "C=2"]), &two, Some(&size)).is_ok(), "C is in the world size alone");
    let message = check(&variables(&["A=1..2", "B=1", "C=2"]), &two, Some(&size)).unwrap_err().to_string();
    assert!(message.contains("--world-size {A}x{C} has A, which is a range"), "{message}");
    assert!(check(&variables(&["A=1", "B=1"]), &two, Some(&size)).is_err(), "C has no values");
}

#[test]
fn values_are_put_where_their_names_are_and_nowhere_else() {
    let values = vec![("MB".to_owned(), "8".to_owned()), ("S".to_owned(), "é{MB}".to_owned())];
    let command = words(&["--mb={MB}x{MB}", "{\"a\": {MB}}", "{{MB}}", "{S}", "é{", "{}", "{not a name}", "{{", "}"]);
    let expected = words(&["--mb=8x8", "{\"a\": 8}", "{MB}", "é{MB}", "é{", "{}", "{not a name}", "{{", "}"]);
    assert_eq!(substitute(&command.into_iter().collect(), &values).words(), expected);
}

#[test]
fn lists_are_combined_and_too_many_refused() {
    let all = combinations(&variables(&["A=1,2", "N=1..9", "B=x,y"])).unwrap();
    let text = |assignment: &Assignment| assignment.iter().map(|(n, v)| format!("{n}{v}")).collect::<String>();
    assert_eq!(all.iter().map(text).collect::<Vec<_>>(), ["A1Bx", "A1By", "A2Bx", "A2By"]);
    let many = (0..50).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let names = ["A", "B"].map(|name| format!("{name}={many}"));
    assert!(combinations(&variables(&[&names[0], &names[1]])).is_err());
}
