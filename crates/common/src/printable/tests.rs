use super::*;

#[test]
fn commands_to_a_terminal_are_spelt_out() {
    assert_eq!(printable("Größe\t1\n"), "Größe\t1\n");
    assert_eq!(printable("a\x1b]0;b\x07\r\u{9b}2J\u{202e}c"), "a\\u{1b}]0;b\\u{7}\\u{d}\\u{9b}2J\\u{202e}c");
}
