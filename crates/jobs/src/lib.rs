//! What the command line and Python both do with the crates below: no arguments, no tables, no terminal.
