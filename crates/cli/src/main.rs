//! The `superpoll` command.
fn main() {}
