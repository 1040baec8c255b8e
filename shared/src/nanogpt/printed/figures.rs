//! The lines of `train.py` that stand alone, by their beginnings; a line that only resembles one says nothing.

use super::Printed;
use crate::protocol::run::{Evaluation, Iteration};

/// Longest name of a checkpoint's folder that is kept, and of a list of blocks.
const MAX_FOLDER_BYTES: usize = 4096;

/// What a line says.
pub(super) fn said(line: &str) -> Option<Printed> {
    // Most lines of most programs begin otherwise.
    match line.as_bytes().first()? {
        b'i' => iteration(line).map(Printed::Iteration),
        b's' if line.starts_with("step ") => evaluation(line).map(Printed::Evaluation),
        b's' => {
            let folder = line.strip_prefix("saving checkpoint to ")?.trim();
            (folder.len() <= MAX_FOLDER_BYTES).then(|| Printed::Checkpoint(folder.to_owned()))
        }
        b'n' => {
            let (millions, _) = line.strip_prefix("number of parameters: ")?.split_once('M')?;
            let decimals = millions.split_once('.').map_or(0, |(_, digits)| digits.len());
            let decimals = u32::try_from(decimals).ok()?;
            finite(millions)
                .filter(|millions| *millions >= 0.0)
                .map(|millions| Printed::Parameters { millions, decimals })
        }
        b'A' => {
            let said = |start, end| line.strip_prefix(start)?.split_once(end)?.0.parse::<u64>().ok();
            let parameters = said("A GPT of ", " parameters: ").map(Printed::Builtin);
            parameters.or_else(|| said("Allocated ", " bytes").map(Printed::Allocation))
        }
        b'C' => {
            let what = line.strip_prefix("Computed again in backward: ")?.trim_end().trim_end_matches('.');
            let is_any = what != "nothing" && what.len() <= MAX_FOLDER_BYTES;
            Some(Printed::Recompute(is_any.then(|| what.to_owned())))
        }
        b'e' => {
            let (done, of) = line.strip_prefix("evaluating: ")?.split_once(" of ")?;
            let of = of.split_once(" batches")?.0;
            Some(Printed::Evaluating { done: done.parse().ok()?, of: of.parse().ok()? })
        }
        b'O' => line.starts_with("On the CPU, ").then_some(Printed::OnCpu),
        b't' => {
            let tokens = line.strip_prefix("tokens per iteration will be: ")?;
            let end = tokens.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(tokens.len());
            tokens[..end].replace(',', "").parse().ok().map(Printed::TokensPerIteration)
        }
        _ => None,
    }
}

/// `iter 20: loss 10.1563, time 3607.03ms, mfu 0.02%`, and with what `headroom train` adds: `, 1868 tokens/s, 3 min left,
/// lr 6.000e-4, norm 0.8312`.
fn iteration(line: &str) -> Option<Iteration> {
    let (iter, rest) = line.strip_prefix("iter ")?.split_once(": loss ")?;
    let mut parts = rest.split(", ");
    let loss = parts.next()?;
    let time_ms = parts.next()?.strip_prefix("time ")?.strip_suffix("ms")?;
    let (mut mfu_printed_percent, mut tokens_per_second) = (None, None);
    let (mut learning_rate, mut gradient_norm) = (None, None);
    for part in parts {
        if let Some(mfu) = part.strip_prefix("mfu ").and_then(|mfu| mfu.strip_suffix('%')) {
            // Before the fifth iteration nanoGPT prints -100: it has measured none yet.
            mfu_printed_percent = finite(mfu).filter(|mfu| *mfu >= 0.0);
        } else if let Some(rate) = part.strip_suffix(" tokens/s") {
            tokens_per_second = finite(rate).filter(|rate| *rate >= 0.0);
        } else if let Some(rate) = part.strip_prefix("lr ") {
            learning_rate = finite(rate);
        } else if let Some(norm) = part.strip_prefix("norm ") {
            gradient_norm = finite(norm);
        }
    }
    // Tokens a second are printed by `headroom train` alone, whose utilisation is the card's own.
    let (mfu_printed_percent, mfu_percent) =
        if tokens_per_second.is_some() { (None, mfu_printed_percent) } else { (mfu_printed_percent, None) };
    Some(Iteration {
        iter: iter.parse().ok()?,
        loss: number(loss)?,
        time_ms: finite(time_ms).filter(|time| *time >= 0.0)?,
        tokens_per_second,
        mfu_printed_percent,
        mfu_percent,
        learning_rate,
        gradient_norm,
    })
}

/// `step 20: train loss 10.1396, val loss 10.1374`.
fn evaluation(line: &str) -> Option<Evaluation> {
    let (iter, rest) = line.strip_prefix("step ")?.split_once(": train loss ")?;
    let (train, val) = rest.split_once(", val loss ")?;
    Some(Evaluation { iter: iter.parse().ok()?, train_loss: number(train)?, val_loss: number(val.trim_end())? })
}

/// A number as Python prints it; of one that is not finite, that there is none.
fn number(text: &str) -> Option<Option<f64>> {
    let number: f64 = text.parse().ok()?;
    Some(number.is_finite().then_some(number))
}

fn finite(text: &str) -> Option<f64> {
    number(text)?
}
