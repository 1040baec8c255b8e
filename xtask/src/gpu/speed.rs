//! Tokens per second: Headroom without and with block recomputation, nanoGPT with and without torch.compile, and llm.c.

use super::{
    llmc, nanogpt,
    options::{Options, Size},
    programs::Scratch,
    results::{LineWriter, absent},
    training::{self, TrainingSettings},
};
use crate::{
    failure::Result,
    shell::{Shell, note},
};
use serde_json::{Value, json};
use std::path::Path;

/// Recomputation level and attention backend: none with the built-in attention, none with cuDNN if it is faster, and
/// whole blocks.
const WAYS: [(&str, &str); 3] = [("none", "own"), ("none", "cudnn"), ("block", "own")];

/// Adds a line per run; an impossible one has the reason.
pub fn measure(shell: &Shell, headroom: &Path, options: &Options, found: &mut LineWriter<'_>) -> Result<()> {
    let scratch = Scratch::new()?;
    let size = &options.size;
    let (data, vocab_size) = training::data(shell, headroom, &scratch, size.tokenizer)?;
    let mut add = |line: Value| {
        note(&summary(&line));
        found.add(line)
    };
    for batch_size in size.speeds {
        for (recompute, attention) in WAYS {
            let (device, model, iterations, data) = ("cuda", size.model, size.warm_up + size.timed, &data);
            let asked =
                TrainingSettings { device, model, batch_size, iterations, vram: None, recompute, attention, data };
            add(ours(shell, headroom, size, &asked, &scratch, vocab_size)?)?;
        }
    }
    // The slowest run last, because a borrowed machine may be gone by then.
    llmc::measure(shell, options, &scratch, &data, &mut add)?;
    nanogpt::measure(shell, options, &scratch, &mut add)
}

fn ours(
    shell: &Shell,
    headroom: &Path,
    size: &Size,
    asked: &TrainingSettings<'_>,
    scratch: &Scratch,
    vocab_size: u64,
) -> Result<Value> {
    let who = "headroom";
    let absent = |why: &str| {
        let mut line = absent(who, asked.batch_size, why);
        (line["recompute"], line["attention"]) = (asked.recompute.into(), asked.attention.into());
        line
    };
    let planned = asked.plan(shell, headroom, scratch)?;
    if let Some(why) = planned.why {
        return Ok(absent(&why));
    }
    let trained = asked.run(shell, headroom, scratch)?;
    let median_ms = training::median_ms(&trained.times_ms, size.warm_up);
    let Some((median_ms, None)) = median_ms.map(|ms| (ms, trained.why.as_deref())) else {
        return Ok(absent(trained.why.as_deref().unwrap_or("too few iterations")));
    };
    Ok(json!({
        "kind": "speed", "who": who, "available": true, "batch_size": asked.batch_size,
        "recompute": asked.recompute, "attention": asked.attention, "attention_backend": trained.attention_backend,
        "attention_notes": trained.attention_notes, "gemm_backend": trained.gemm_backend, "allocated_bytes": trained.allocated_bytes, "iteration_ms": median_ms,
        "tokens_per_second": asked.tokens() as f64 / median_ms * 1e3,
        "operations_per_token": asked.operations_per_token(vocab_size)?,
    }))
}

fn summary(line: &Value) -> String {
    let word = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
    let who = format!("{} {} {} B = {}", word("who"), word("recompute"), word("attention"), line["batch_size"]);
    match line["tokens_per_second"].as_f64() {
        Some(tokens) => format!("{who}: {tokens:.0} tokens/s"),
        None => format!("{who}: {}", word("reason")),
    }
}
