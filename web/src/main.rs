//! web: to be written.
fn main() {}
