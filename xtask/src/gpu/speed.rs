//! Tokens a second: ours with all kept and with blocks computed again, nanoGPT's with and without torch.compile, llm.c's.

use super::{
    book::Found,
    llmc, nanogpt,
    options::{Model, Options, Size},
    programs::Scratch,
    training::{self, Asked},
};
use crate::{
    failure::Result,
    shell::{Shell, note},
};
use serde_json::{Value, json};
use std::path::Path;

/// All kept, by our own attention and by cuDNN's where it is faster, and whole blocks computed again.
const WAYS: [(&str, &str); 3] = [("none", "own"), ("none", "cudnn"), ("block", "own")];

/// A line a run; one that cannot be here says why.
pub fn measure(shell: &Shell, headroom: &Path, options: &Options, found: &mut Found<'_>) -> Result<()> {
    let scratch = Scratch::new()?;
    let size = &options.size;
    let (data, vocab_size) = training::data(shell, headroom, &scratch, size.tokenizer)?;
    let mut add = |line: Value| {
        note(&told(&line));
        found.add(line)
    };
    for batch_size in size.speeds {
        for (recompute, attention) in WAYS {
            let (device, model, iterations, data) = ("cuda", size.model, size.warm_up + size.timed, &data);
            let asked = Asked { device, model, batch_size, iterations, vram: None, recompute, attention, data };
            add(ours(shell, headroom, size, &asked, &scratch, vocab_size)?)?;
        }
    }
    // What takes long comes last: a machine that is lent may be gone by then.
    llmc::measure(shell, options, &scratch, &data, &mut add)?;
    nanogpt::measure(shell, options, &scratch, &mut add)
}

fn ours(
    shell: &Shell,
    headroom: &Path,
    size: &Size,
    asked: &Asked<'_>,
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
        "recompute": asked.recompute, "attention": asked.attention, "attention_by": trained.attention_by,
        "attention_notes": trained.attention_notes, "multiplied_by": trained.multiplied_by, "allocated_bytes": trained.allocated_bytes, "iteration_ms": median_ms,
        "tokens_per_second": asked.tokens() as f64 / median_ms * 1e3,
        "operations_per_token": asked.operations_per_token(vocab_size)?,
    }))
}

/// A line of somebody who is not here, or for whom the card is too small.
pub fn absent(who: &str, batch_size: u64, reason: &str) -> Value {
    json!({ "kind": "speed", "who": who, "available": false, "batch_size": batch_size, "reason": reason })
}

/// The words that give a model's shape to another's program.
pub fn shape_words(model: Model) -> [String; 4] {
    let Model { n_layer, n_head, n_embd, block_size } = model;
    [n_layer, n_head, n_embd, block_size].map(|number| number.to_string())
}

fn told(line: &Value) -> String {
    let word = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
    let who = format!("{} {} {} B = {}", word("who"), word("recompute"), word("attention"), line["batch_size"]);
    match line["tokens_per_second"].as_f64() {
        Some(tokens) => format!("{who}: {tokens:.0} tokens/s"),
        None => format!("{who}: {}", word("reason")),
    }
}
