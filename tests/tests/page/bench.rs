//! The time of one plan on the shipped page. It is printed without a bound, as machines differ.

use crate::page::{Page, tell};

const RUNS: u32 = 100;

/// Returns the mean milliseconds per run, after uncounted runs in which the browser compiles hot code.
async fn mean_millis(page: &Page, hook: &str) -> f64 {
    let call = format!(
        "{{ const names = document.querySelector('script[data-wasm]').dataset;
            const page = await import(new URL(names.js, document.baseURI));
            page.{hook}({RUNS});
            return page.{hook}({RUNS}); }}"
    );
    page.promise(&call).await.as_f64().unwrap_or(f64::NAN)
}

#[test]
fn bench_of_a_plan_in_the_browser() {
    tell("bench_of_a_plan_in_the_browser", async |page| {
        for (model, layers, shape) in [("GPT-2 124M", 12, ""), ("GPT-2 XL", 48, "&n_layer=48&n_head=25&n_embd=1600")] {
            page.goto(&format!("{}gpus.html#1&batch_size=4{shape}&gpu=H100", page.address)).await;
            let planned = "document.querySelector('[data-testid=gpus-summary]')?.dataset.planning === 'false'";
            page.until("every GPU is planned", planned).await;
            for hook in ["bench_plan", "bench_keystroke"] {
                let millis = mean_millis(page, hook).await;
                // A NaN would mean that nothing was planned.
                assert!(millis.is_finite() && millis > 0.0, "{hook} of {model}: {millis}");
                let line = serde_json::json!({
                    "bench": hook, "model": model, "layers": layers, "mean_ms": millis, "runs": RUNS,
                });
                println!("{line}");
            }
        }
    });
}
