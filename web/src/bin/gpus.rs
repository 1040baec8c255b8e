//! The page that lists the GPUs on which a run fits, and the functions that the browser benchmark calls.

use headroom_web::bench;
use wasm_bindgen::prelude::wasm_bindgen;

fn main() {
    headroom_web::gpus();
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
