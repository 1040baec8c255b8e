//! The calculator, and the functions that its browser benchmark calls.

use headroom_web::bench;
use wasm_bindgen::prelude::wasm_bindgen;

fn main() {
    headroom_web::budget();
}

/// Calls [`bench::plan_millis`].
#[wasm_bindgen]
pub fn bench_plan(n: u32) -> f64 {
    bench::plan_millis(n)
}

/// Calls [`bench::keystroke_millis`].
#[wasm_bindgen]
pub fn bench_keystroke(n: u32) -> f64 {
    bench::keystroke_millis(n)
}
