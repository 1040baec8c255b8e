//! Inference on WebGPU: `cargo bench -p headroom-kernels --features wgpu --bench wgpu [WORD…]`. Prints a
//! JSON line a shape and kind of weights, of those whose name has one of the words; `headroom_kernels::measure::webgpu`
//! says how it measures.
#![allow(clippy::print_stdout, reason = "figures are what a benchmark is for")]

use std::error::Error;

use headroom_kernels::measure::{
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
