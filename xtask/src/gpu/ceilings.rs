//! Each kernel's time relative to the GPU's ceilings: the bandwidth of a copy, and the fastest bfloat16 GEMM of
//! Headroom's kernels or PyTorch's cuBLASLt.

use super::{nvml, programs::Scratch, results::LineWriter, thresholds::gemm_ceiling};
use crate::{
    failure::{Failure, Result},
    shell::{Shell, note},
};
use serde_json::{Value, json};
use std::{path::Path, time::Duration};

/// Time limit for some sixty ops with 23 runs each.
const TIME_MAX: Duration = Duration::from_secs(400);
const TORCH_TIME_MAX: Duration = Duration::from_secs(200);
const TORCH: &str = include_str!("../../gpu/products.py");

/// Adds a line per op and a line per ceiling.
pub fn measure(shell: &Shell, cuda_ops: &Path, tiny: bool, found: &mut LineWriter<'_>) -> Result<()> {
    let command = shell.cmd(cuda_ops).args(tiny.then_some("--tiny"));
    let ended = command.limited(TIME_MAX, |_| {})?;
    let mut ops: Vec<Value> = ended.out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if let Some(why) = ended.why() {
        return Err(Failure::new(format!("cuda_ops: {why}")));
    }
    if ops.is_empty() {
        return Err(Failure::new(format!("cuda_ops measured nothing: {}", ended.err.trim())));
    }
    let ceilings = [own(&ops), torch(shell)?];
    let ceiling = gemm_ceiling(&ceilings);
    found.extend(ceilings)?;
    for op in &mut ops {
        op["kind"] = "op".into();
        let share = op["operations_per_second"].as_f64().zip(ceiling).map(|(rate, ceiling)| rate / ceiling);
        op["of_gemm_ceiling"] = share.into();
        if let Some(share) = share.or_else(|| op["of_copy"].as_f64()) {
            let of = if op["operations"].is_null() { "a copy" } else { "the fastest product" };
            note(&format!("{:<34} {:>6.1} % of {of}", op["op"].as_str().unwrap_or_default(), share * 100.0));
        }
    }
    found.extend(ops)
}

/// Returns the fastest GEMM of Headroom's kernels.
fn own(ops: &[Value]) -> Value {
    let gemm = ops.iter().filter(|op| op["op"].as_str().is_some_and(|name| name.starts_with("matmul_")));
    let rate = |op: &Value| op["operations_per_second"].as_f64().unwrap_or_default();
    match gemm.max_by(|a, b| rate(a).total_cmp(&rate(b))) {
        Some(op) => json!({
            "kind": "ceiling", "of": "headroom", "available": true, "op": op["op"], "operations_per_second": rate(op),
        }),
        None => json!({ "kind": "ceiling", "of": "headroom", "available": false, "reason": "no product was measured" }),
    }
}

/// Returns PyTorch's fastest GEMM.
fn torch(shell: &Shell) -> Result<Value> {
    let absent = |reason: String| json!({ "kind": "ceiling", "of": "torch", "available": false, "reason": reason });
    if !nvml::has_torch(shell) {
        return Ok(absent("python3 has no PyTorch with CUDA".to_owned()));
    }
    let scratch = Scratch::new()?;
    let script = scratch.write("products.py", TORCH.as_bytes())?.display().to_string();
    let ended = shell.cmd("python3").args([script]).limited(TORCH_TIME_MAX, |_| {})?;
    let printed = ended.out.lines().rev().find_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(match printed.filter(|printed| ended.success && printed["operations_per_second"].is_f64()) {
        Some(mut line) => {
            line["kind"] = "ceiling".into();
            line["of"] = "torch".into();
            line["available"] = true.into();
            line
        }
        None => absent(ended.why().unwrap_or_else(|| "it prints no rate".to_owned())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_product_is_the_ceiling_and_attention_is_none() {
        let op = |name: &str, rate: f64| json!({ "op": name, "operations": 1, "operations_per_second": rate });
        let ops = [op("matmul_forward_qkv", 3e14), op("matmul_forward_logits", 4e14), op("attention_forward", 9e14)];
        assert_eq!(own(&ops)["operations_per_second"], 4e14);
        assert_eq!(own(&ops)["op"], "matmul_forward_logits");
        assert_eq!(own(&[])["available"], false);
    }
}
