//! Benchmark of CPU training: `cargo bench -p headroom-kernels --features train --bench train [small|medium|gpt2]
//! [--threads N]`.
//!
//! Prints a JSON line per shape. The method is described in `headroom_kernels::bench::train`.
//!
//! `kernels/benches/pytorch` runs the same shapes with PyTorch and prints the ratio.
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::error::Error;

use headroom_kernels::bench::{
    is_meant,
    train::{CASES, measure},
};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    let mut threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut named = Vec::new();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--threads" => threads = words.next().ok_or("--threads needs a number")?.parse()?,
            _ => named.push(word),
        }
    }
    for case in CASES.iter().filter(|case| is_meant(&format!("train {}", case.name), &named)) {
        let figures = measure(case, &case.config()?, threads, case.full())?;
        println!("{}", json!({ "shape": case.name, "figures": figures }));
    }
    Ok(())
}
