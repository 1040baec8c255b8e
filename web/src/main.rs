//! The calculator, and what a benchmark of it calls.

use headroom_web::bench;
use wasm_bindgen::prelude::wasm_bindgen;

fn main() {
    headroom_web::budget();
}

/// See [`bench::plan_millis`].
#[wasm_bindgen]
pub fn bench_plan(n: u32) -> f64 {
    bench::plan_millis(n)
}

/// See [`bench::keystroke_millis`].
#[wasm_bindgen]
pub fn bench_keystroke(n: u32) -> f64 {
    bench::keystroke_millis(n)
}
