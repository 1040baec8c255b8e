//! Lines of `headroom train --json`.

use headroom_protocol::{
    printed::PrintedInfo,
    run::{Evaluation, Iteration},
};
use serde_json::{Map, Value};

/// Parses a line. `None` for a line that `headroom train --json` does not print.
pub fn parse(line: &str) -> Option<PrintedInfo> {
    if !line.starts_with('{') {
        return None;
    }
    let fields: Map<String, Value> = serde_json::from_str(line).ok()?;
    let number = |name: &str| fields.get(name).and_then(Value::as_f64);
    let count = |name: &str| fields.get(name).and_then(Value::as_u64);
    let has = |name: &str| fields.contains_key(name);
    let iter = count("iter")?;
    if has("loss") {
        return Some(PrintedInfo::Iteration(Iteration {
            iter,
            // A loss that is not finite is null.
            loss: number("loss"),
            time_ms: number("time_ms")?,
            tokens_per_second: number("tokens_per_second"),
            mfu_printed_percent: None,
            mfu_percent: number("mfu").map(|mfu| mfu * 100.0),
            learning_rate: number("lr"),
            gradient_norm: number("gradient_norm"),
        }));
    }
    if has("train_loss") && has("val_loss") {
        let (train_loss, val_loss) = (number("train_loss"), number("val_loss"));
        return Some(PrintedInfo::Evaluation(Evaluation { iter, train_loss, val_loss }));
    }
    if let (Some(done), Some(of)) = (count("evaluated_batches"), count("of_batches")) {
        return Some(PrintedInfo::Evaluating { done, of });
    }
    count("saved_bytes")?;
    Some(PrintedInfo::Checkpoint(fields.get("folder")?.as_str()?.to_owned()))
}
