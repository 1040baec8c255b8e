//! Parsing of single lines of `train.py`, selected by their beginning. Lines that are only similar are ignored.

use super::PrintedInfo;
use crate::run::{Evaluation, Iteration};

/// Maximum length of a checkpoint directory, and of a list of blocks, in bytes.
const MAX_FOLDER_BYTES: usize = 4096;

/// Parses a line.
pub(super) fn said(line: &str) -> Option<PrintedInfo> {
    // Most lines of most programs are rejected by their first byte.
    match line.as_bytes().first()? {
        b'i' => iteration(line).map(PrintedInfo::Iteration),
        b's' if line.starts_with("step ") => evaluation(line).map(PrintedInfo::Evaluation),
        b's' => {
            let folder = line.strip_prefix("saving checkpoint to ")?.trim();
            (folder.len() <= MAX_FOLDER_BYTES).then(|| PrintedInfo::Checkpoint(folder.to_owned()))
        }
        b'n' => {
            let (millions, _) = line.strip_prefix("number of parameters: ")?.split_once('M')?;
            let decimals = millions.split_once('.').map_or(0, |(_, digits)| digits.len());
            let decimals = u32::try_from(decimals).ok()?;
            finite(millions)
                .filter(|millions| *millions >= 0.0)
                .map(|millions| PrintedInfo::Parameters { millions, decimals })
        }
        b'A' => {
            let said = |start, end| line.strip_prefix(start)?.split_once(end)?.0.parse::<u64>().ok();
            let parameters = said("A GPT of ", " parameters: ").map(PrintedInfo::Builtin);
            parameters.or_else(|| said("Allocated ", " bytes").map(PrintedInfo::Allocation))
        }
        b'e' => {
            let (done, of) = line.strip_prefix("evaluating: ")?.split_once(" of ")?;
            let of = of.split_once(" batches")?.0;
            Some(PrintedInfo::Evaluating { done: done.parse().ok()?, of: of.parse().ok()? })
        }
        b'O' => line.starts_with("On the CPU, ").then_some(PrintedInfo::OnCpu),
        b't' => {
            let tokens = line.strip_prefix("tokens per iteration will be: ")?;
            let end = tokens.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(tokens.len());
            tokens[..end].replace(',', "").parse().ok().map(PrintedInfo::TokensPerIteration)
        }
        _ => None,
    }
}

/// Parses `iter 20: loss 10.1563, time 3607.03ms, mfu 0.02%`, and the additional fields of `headroom train`: `, 1868
/// tokens/s, 3 min left, lr 6.000e-4, norm 0.8312`.
fn iteration(line: &str) -> Option<Iteration> {
    let (iter, rest) = line.strip_prefix("iter ")?.split_once(": loss ")?;
    let mut parts = rest.split(", ");
    let loss = parts.next()?;
    let time_ms = parts.next()?.strip_prefix("time ")?.strip_suffix("ms")?;
    let (mut mfu_printed_percent, mut tokens_per_second) = (None, None);
    let (mut learning_rate, mut gradient_norm) = (None, None);
    for part in parts {
        if let Some(mfu) = part.strip_prefix("mfu ").and_then(|mfu| mfu.strip_suffix('%')) {
            // Before the fifth iteration nanoGPT prints -100, because it has no measurement yet.
            mfu_printed_percent = finite(mfu).filter(|mfu| *mfu >= 0.0);
        } else if let Some(rate) = part.strip_suffix(" tokens/s") {
            tokens_per_second = finite(rate).filter(|rate| *rate >= 0.0);
        } else if let Some(rate) = part.strip_prefix("lr ") {
            learning_rate = finite(rate);
        } else if let Some(norm) = part.strip_prefix("norm ") {
            gradient_norm = finite(norm);
        }
    }
    // Only `headroom train` prints tokens per second. Its MFU is relative to the actual GPU.
    let (mfu_printed_percent, mfu_percent) =
        if tokens_per_second.is_some() { (None, mfu_printed_percent) } else { (mfu_printed_percent, None) };
    Some(Iteration {
        iter: iter.parse().ok()?,
        loss: loss_of(loss)?,
        time_ms: finite(time_ms).filter(|time| *time >= 0.0)?,
        tokens_per_second,
        mfu_printed_percent,
        mfu_percent,
        learning_rate,
        gradient_norm,
    })
}

/// Parses `step 20: train loss 10.1396, val loss 10.1374`.
fn evaluation(line: &str) -> Option<Evaluation> {
    let (iter, rest) = line.strip_prefix("step ")?.split_once(": train loss ")?;
    let (train, val) = rest.split_once(", val loss ")?;
    Some(Evaluation { iter: iter.parse().ok()?, train_loss: loss_of(train)?, val_loss: loss_of(val.trim_end())? })
}

/// Parses a loss as Python prints it. Returns `Some(None)` for NaN.
fn loss_of(text: &str) -> Option<Option<f64>> {
    let number: f64 = text.parse().ok()?;
    Some((!number.is_nan()).then_some(number))
}

fn finite(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}
