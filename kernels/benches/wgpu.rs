//! Benchmark of WebGPU inference: `cargo bench -p headroom-kernels --features wgpu --bench wgpu [WORD…]`.
//!
//! Prints a JSON line per shape and element type whose name contains one of the words; by default, for all. The method
//! is described in `headroom_kernels::bench::webgpu`.
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::error::Error;

use headroom_kernels::bench::{
    Effort, MODELS, is_meant,
    webgpu::{Device, weights_name},
};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let named: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let device = Device::open()?;
    for model in MODELS {
        for half in [false, true] {
            if is_meant(&format!("wgpu {} {}", model.name, weights_name(half)), &named) {
                let figures = device.measure(&model, &model.config()?, half, Effort::Full)?;
                println!("{}", json!({ "adapter": device.name(), "shape": model.name, "figures": figures }));
            }
        }
    }
    Ok(())
}
