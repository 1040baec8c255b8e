//! Inference on the CPU: `cargo bench -p headroom-kernels --bench decode [WORD…]`. Prints a JSON line a shape
//! and storage, of those whose name has one of the words; `headroom_kernels::measure::decode` says how it measures.
#![allow(clippy::print_stdout, reason = "figures are what a benchmark is for")]

use std::error::Error;

use headroom_kernels::measure::{
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
