//! The times of a plan and of a frame on the shipped page. They are printed without a bound, as machines differ.

use crate::page::{Page, tell, tell_unopened};
use headroom_harness::repetitions;
use std::ops::Range;

/// Runs of a hook. The normal tier checks that the benchmark works; the full one measures.
fn runs() -> u32 {
    repetitions(10, 100)
}

/// Returns the mean milliseconds per run, after uncounted runs in which the browser compiles hot code.
async fn mean_millis(page: &Page, hook: &str) -> f64 {
    let runs = runs();
    let call = format!(
        "{{ const names = document.querySelector('script[data-wasm]').dataset;
            const page = await import(new URL(names.js, document.baseURI));
            page.{hook}({runs});
            return page.{hook}({runs}); }}"
    );
    page.promise(&call).await.as_f64().unwrap_or(f64::NAN)
}

#[test]
fn bench_of_a_plan_in_the_browser() {
    tell_unopened("bench_of_a_plan_in_the_browser", async |page| {
        for (model, layers, shape) in [("GPT-2 124M", 12, ""), ("GPT-2 XL", 48, "&n_layer=48&n_head=25&n_embd=1600")] {
            page.goto(&format!("{}gpus.html#1&batch_size=4{shape}&gpu=H100", page.address)).await;
            let planned = "document.querySelector('[data-testid=gpus-summary]')?.dataset.planning === 'false'";
            page.until("every GPU is planned", planned).await;
            for hook in ["bench_plan", "bench_keystroke"] {
                let millis = mean_millis(page, hook).await;
                // A NaN would mean that nothing was planned.
                assert!(millis.is_finite() && millis > 0.0, "{hook} of {model}: {millis}");
                let line = serde_json::json!({
                    "bench": hook, "model": model, "layers": layers, "mean_ms": millis, "runs": runs(),
                });
                println!("{line}");
            }
        }
    });
}

/// Inputs of a part of a drag: a script has 30 seconds, on a slow machine too.
const PART: u32 = 10;

/// Inputs of one drag.
fn inputs() -> u32 {
    repetitions(PART, 40)
}

/// The time from an input of a dragged slider until the frame with its plan is painted, at a CPU's full speed and slowed
/// four times. Each input is dispatched at the start of a frame, so that no time is spent on waiting for the next one.
#[test]
fn bench_of_a_drag_in_the_browser() {
    tell("bench_of_a_drag_in_the_browser", async |page| {
        for (model, shape) in [("GPT-2 124M", ""), ("48 layers", "&n_layer=48&n_head=12&n_embd=768")] {
            page.open(&format!("1&batch_size=4{shape}&gpu=H100")).await;
            page.until("fixes are offered", "document.querySelector('.fixes:not(.stale)')").await;
            // The first drag compiles the program's hot code.
            drag(page).await;
            for slowed in [1, 4] {
                page.cdp("Emulation.setCPUThrottlingRate", serde_json::json!({ "rate": slowed })).await;
                let times = drag(page).await;
                let at = |percent: usize| times[(times.len() - 1) * percent / 100];
                let line = serde_json::json!({
                    "bench": "drag", "model": model, "slowed": slowed, "inputs": inputs(),
                    "median_ms": at(50), "p95_ms": at(95), "max_ms": at(100),
                });
                println!("{line}");
            }
            page.cdp("Emulation.setCPUThrottlingRate", serde_json::json!({ "rate": 1 })).await;
        }
    });
}

/// Drags the slider of the batch size. Checks that each frame shows its input, and returns the sorted times in
/// milliseconds.
async fn drag(page: &Page) -> Vec<f64> {
    let mut times: Vec<f64> = Vec::new();
    for start in (0..inputs()).step_by(PART as usize) {
        let part = page.promise(&part_of_a_drag(start..start + PART)).await;
        let part: Vec<Option<f64>> = serde_json::from_value(part).expect("times");
        times.extend(part.into_iter().map(|time| time.expect("the plan of an input is painted in its frame")));
    }
    times.sort_by(f64::total_cmp);
    times
}

/// Returns a script that drags the slider. It has the time of each input, or null if the chart did not change.
fn part_of_a_drag(inputs: Range<u32>) -> String {
    let Range { start, end } = inputs;
    format!(
        "{{
            const slider = document.querySelector('#batch_size-range');
            const drawing = () => document.querySelector('.chart__plot').innerHTML;
            const frame = () => new Promise((done) => requestAnimationFrame(done));
            const painted = () => new Promise((done) => {{
                const {{ port1, port2 }} = new MessageChannel();
                port1.onmessage = done;
                port2.postMessage(0);
            }});
            const times = [];
            for (let i = {start}; i < {end}; i++) {{
                await frame();
                const before = drawing();
                const start = performance.now();
                slider.value = 5 + i;
                slider.dispatchEvent(new Event('input', {{ bubbles: true }}));
                await painted();
                const time = performance.now() - start;
                times.push(drawing() === before ? null : time);
            }}
            return times;
        }}"
    )
}
