//! The `stalloc` command: arguments, tables, progress; no logic.

fn main() {}
