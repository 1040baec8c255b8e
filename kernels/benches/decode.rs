//! Benchmark of CPU inference: `cargo bench -p headroom-kernels --bench decode [WORD…]`.
//!
//! Prints a JSON line per shape and storage whose name contains one of the words; by default, for all. The method is
//! described in `headroom_kernels::bench::decode`.
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::error::Error;

use headroom_kernels::bench::{
    Effort, MODELS,
    decode::{STORAGES, measure, name},
    is_meant,
};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let named: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    for model in MODELS {
        for storage in STORAGES {
            if is_meant(&format!("decode {} {}", model.name, name(storage)), &named) {
                let figures = measure(&model, &model.config()?, storage, Effort::Full)?;
                println!("{}", json!({ "shape": model.name, "figures": figures }));
            }
        }
    }
    Ok(())
}
