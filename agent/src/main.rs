//! agent: to be written.
fn main() {}
