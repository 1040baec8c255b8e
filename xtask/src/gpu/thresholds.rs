//! The limits, computed only from the lines of all steps. A step that did not run, or lacked a program, has none.

use serde_json::{Value, json};

/// Required speed relative to nanoGPT with torch.compile.
const NANOGPT_BAR: f64 = 1.2;
/// Required speed relative to llm.c.
const LLMC_BAR: f64 = 1.0;
/// Required fraction of the GPU's measured GEMM rate in training without recomputation.
const MFU_BAR: f64 = 0.55;
/// Largest relative difference between losses on CPU and GPU. bfloat16 has 8 bits, and its roundings go both ways.
const LOSS_TOLERANCE: f64 = 0.01;

/// A limit and its measured value.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// The description.
    pub what: String,
    /// The measured value.
    pub value: Value,
    /// The limit.
    pub bar: Value,
    /// Whether the value satisfies the limit.
    pub holds: bool,
}

impl Bar {
    fn new(what: impl Into<String>, value: impl Into<Value>, bar: impl Into<Value>, holds: bool) -> Self {
        Self { what: what.into(), value: value.into(), bar: bar.into(), holds }
    }

    fn at_least(what: impl Into<String>, value: f64, bar: f64) -> Self {
        Self::new(what, rounded(value), bar, value >= bar)
    }

    fn none(what: impl Into<String>, n: usize) -> Self {
        Self::new(what, n, 0, n == 0)
    }

    /// Returns the limit as a line.
    pub fn line(&self) -> Value {
        json!({ "kind": "bar", "what": self.what, "value": self.value, "bar": self.bar, "holds": self.holds })
    }
}

/// Rounds to four significant digits, the precision of the measurements.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// The highest measured rate of bfloat16 matrix products on the GPU, by any backend, in operations per second.
pub fn gemm_ceiling(lines: &[Value]) -> Option<f64> {
    let rates = of_kind(lines, "ceiling").filter_map(|line| line["operations_per_second"].as_f64());
    rates.fold(None, |best: Option<f64>, rate| Some(best.map_or(rate, |best| best.max(rate))))
}

/// Returns all limits for which there are lines.
pub fn of(lines: &[Value]) -> Vec<Bar> {
    let mut bars = Vec::new();
    if of_kind(lines, "agreement").any(|line| line["agrees"].is_boolean()) {
        let n = of_kind(lines, "agreement").filter(|line| line["agrees"] == false).count();
        bars.push(Bar::none("values that nvidia-smi prints otherwise", n));
    }
    if any(lines, "kernel_test") {
        let n = of_kind(lines, "kernel_test").filter(|line| line["passes"] != true).count();
        bars.push(Bar::none("kernels' tests that fail on the GPU", n));
    }
    for tool in ["memcheck", "racecheck"] {
        let mut runs = of_kind(lines, "sanitizer").filter(|line| line["tool"] == tool && line["available"] == true);
        if runs.clone().next().is_some() {
            let n = runs.clone().filter_map(|line| line["errors"].as_u64()).sum::<u64>();
            bars.push(Bar::new(format!("{tool} is clean"), n, 0, runs.all(|line| line["clean"] == true)));
        }
    }
    for line in of_kind(lines, "training").filter(|line| line["available"] == true) {
        of_training(line, &mut bars);
    }
    for line in of_kind(lines, "agreement_of_losses").filter(|line| line["available"] == true) {
        let off = line["off_max"].as_f64().unwrap_or(f64::INFINITY);
        let what = "losses on the GPU beside the CPU's, relative";
        bars.push(Bar::new(what, rounded(off), LOSS_TOLERANCE, off <= LOSS_TOLERANCE));
    }
    // The speed of an emulated GPU is meaningless.
    if !of_kind(lines, "machine").any(|line| line["tiny"] == true) {
        of_speed(lines, &mut bars);
    }
    bars
}

/// Adds the limits of the main training run: the loss falls, and the allocated bytes equal the plan.
fn of_training(line: &Value, bars: &mut Vec<Bar>) {
    let name = line["name"].as_str().unwrap_or("training");
    let (first, last) = (line["loss_first"].as_f64(), line["loss_last"].as_f64());
    let falls = first.zip(last).is_some_and(|(first, last)| last < first);
    bars.push(Bar::new(
        format!("{name}: the last loss is below the first"),
        line["loss_last"].clone(),
        line["loss_first"].clone(),
        falls,
    ));
    let [planned, allocated] = ["planned_bytes", "allocated_bytes"].map(|key| line[key].as_u64());
    let equal = planned.is_some() && planned == allocated;
    bars.push(Bar::new(format!("{name}: what is allocated is what was planned"), allocated, planned, equal));
    // The driver's own figure, if it reports one.
    if let (Some(beyond), Some([low, high])) = (line["nvml_beyond_bytes"].as_i64(), band(&line["context_band_bytes"])) {
        let within = (low..=high).contains(&beyond);
        bars.push(Bar::new(
            format!("{name}: NVML's bytes beyond it are a context's"),
            beyond,
            json!([low, high]),
            within,
        ));
    }
}

fn band(value: &Value) -> Option<[i64; 2]> {
    Some([value.get(0)?.as_i64()?, value.get(1)?.as_i64()?])
}

/// Adds comparisons with other programs for each batch size that both have, using the fastest run of each.
fn of_speed(lines: &[Value], bars: &mut Vec<Bar>) {
    let speed = |who: &str, batch_size: u64| {
        let runs = of_kind(lines, "speed").filter(|line| line["who"] == who && line["batch_size"] == batch_size);
        runs.filter_map(|line| line["tokens_per_second"].as_f64())
            .fold(None, |best: Option<f64>, one| Some(best.map_or(one, |best| best.max(one))))
    };
    let mut sizes: Vec<u64> = of_kind(lines, "speed").filter_map(|line| line["batch_size"].as_u64()).collect();
    sizes.sort_unstable();
    sizes.dedup();
    for (who, bar) in [("nanogpt_compile", NANOGPT_BAR), ("llm.c", LLMC_BAR)] {
        for &size in &sizes {
            if let Some((ours, theirs)) = speed("headroom", size).zip(speed(who, size)) {
                bars.push(Bar::at_least(
                    format!("tokens a second over those of {who}, batch size {size}"),
                    ours / theirs,
                    bar,
                ));
            }
        }
    }
    let ceiling = gemm_ceiling(lines);
    let kept = of_kind(lines, "speed").filter(|line| line["who"] == "headroom" && line["recompute"] == "none");
    let rates =
        kept.filter_map(|line| Some(line["tokens_per_second"].as_f64()? * line["operations_per_token"].as_f64()?));
    if let Some((ceiling, rate)) =
        ceiling.zip(rates.fold(None, |best: Option<f64>, one| Some(best.unwrap_or(one).max(one))))
    {
        let what = "MFU of the measured ceiling of bfloat16 products, nothing computed again";
        bars.push(Bar::at_least(what, rate / ceiling, MFU_BAR));
    }
}

fn of_kind<'a>(lines: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> + Clone {
    lines.iter().filter(move |line| line["kind"] == kind)
}

fn any(lines: &[Value], kind: &str) -> bool {
    of_kind(lines, kind).next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(who: &str, batch_size: u64, tokens_per_second: f64) -> Value {
        json!({
            "kind": "speed", "who": who, "batch_size": batch_size, "recompute": "none", "available": true,
            "tokens_per_second": tokens_per_second, "operations_per_token": 1e9,
        })
    }

    fn found(lines: &[Value]) -> Vec<(String, bool)> {
        of(lines).into_iter().map(|bar| (bar.what, bar.holds)).collect()
    }

    #[test]
    fn nothing_measured_has_no_bar() {
        assert_eq!(found(&[]), []);
        assert_eq!(found(&[json!({ "kind": "agreement", "available": false, "reason": "no nvidia-smi" })]), []);
        let absent =
            json!({ "kind": "speed", "who": "llm.c", "batch_size": 32, "available": false, "reason": "absent" });
        assert_eq!(found(&[speed("headroom", 32, 5e5), absent]), []);
    }

    #[test]
    fn speeds_are_held_to_the_others_and_to_the_ceiling() {
        let ceiling = |rate: f64| json!({ "kind": "ceiling", "of": "torch", "operations_per_second": rate });
        let lines = [
            speed("headroom", 32, 6e5),
            speed("headroom", 32, 4e5),
            speed("nanogpt_compile", 32, 5e5),
            speed("llm.c", 32, 6.1e5),
            speed("llm.c", 64, 6.1e5),
            ceiling(9e14),
            ceiling(1e15),
        ];
        let bars = of(&lines);
        let values: Vec<_> = bars.iter().map(|bar| (bar.value.as_f64().expect("a ratio"), bar.holds)).collect();
        // The faster of Headroom's runs; no other program at 64; 6e5 * 1e9 of 1e15.
        assert_eq!(values, [(1.2, true), (0.9836, false), (0.6, true)], "{bars:?}");
        let tiny = json!({ "kind": "machine", "tiny": true });
        assert_eq!(found(&[&lines[..], &[tiny]].concat()), [], "an emulated GPU has no speed");
    }

    #[test]
    fn a_run_is_held_to_its_plan_and_to_the_context() {
        let run = |allocated: u64, beyond: Option<u64>, last: f64| {
            json!({
                "kind": "training", "name": "headline", "available": true, "planned_bytes": 100, "allocated_bytes": allocated,
                "nvml_beyond_bytes": beyond, "context_band_bytes": [10, 20], "loss_first": 10.9, "loss_last": last,
            })
        };
        let holds = |line: Value| of(&[line]).into_iter().map(|bar| bar.holds).collect::<Vec<_>>();
        assert_eq!(holds(run(100, Some(10), 6.0)), [true; 3]);
        assert_eq!(holds(run(100, None, 6.0)), [true; 2], "the driver reports no processes");
        assert_eq!(holds(run(101, Some(21), 11.0)), [false; 3]);
    }

    #[test]
    fn a_checker_that_found_something_or_did_not_end_fails() {
        let run = |errors: Option<u64>, clean: bool| json!({ "kind": "sanitizer", "tool": "memcheck", "available": true, "errors": errors, "clean": clean });
        assert_eq!(found(&[run(Some(0), true)]), [("memcheck is clean".to_owned(), true)]);
        assert!(!of(&[run(Some(0), true), run(None, false)])[0].holds);
        let absent = json!({ "kind": "sanitizer", "tool": "racecheck", "available": false });
        assert_eq!(found(&[absent]), []);
    }
}
