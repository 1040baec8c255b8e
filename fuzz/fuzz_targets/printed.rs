//! Fuzzes a training run's output: any bytes in any chunks give the same result, with bounded memory.
#![no_main]

use headroom_planner::nanogpt::from_pasted_text;
use headroom_protocol::printed::{Lines, MAX_CONFIG_BYTES, MAX_LINE_BYTES, PrintedInfo, Reader};
use libfuzzer_sys::fuzz_target;

/// Returns the parsed lines, and checks the maximum line length.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<PrintedInfo> {
    let (mut lines, mut reader, mut all) = (Lines::default(), Reader::default(), vec![]);
    let mut take = |line: &str| {
        // An invalid byte becomes a character of three bytes.
        assert!(line.len() <= 3 * MAX_LINE_BYTES);
        assert!(!line.contains(['\n', '\r', '\u{1b}']));
        reader.line(line, &mut |said| all.push(said));
    };
    for piece in pieces {
        lines.push(piece, &mut take);
    }
    lines.finish(&mut take);
    reader.finish(&mut |said| all.push(said));
    all
}

fn figures_are_figures(said: &PrintedInfo) {
    let is_figure = |figure: Option<f64>| figure.is_none_or(f64::is_finite);
    let is_loss = |loss: Option<f64>| loss.is_none_or(|loss| !loss.is_nan());
    match said {
        PrintedInfo::Config(text) => {
            assert!(text.len() <= MAX_CONFIG_BYTES);
            let _ = from_pasted_text("log", text).read();
        }
        PrintedInfo::Iteration(it) => {
            assert!(is_loss(it.loss) && it.time_ms.is_finite() && it.time_ms >= 0.0);
            assert!(is_figure(it.tokens_per_second) && is_figure(it.mfu_printed_percent));
            assert!(is_figure(it.learning_rate) && is_figure(it.gradient_norm) && is_figure(it.mfu_percent));
        }
        PrintedInfo::Evaluation(at) => assert!(is_loss(at.train_loss) && is_loss(at.val_loss)),
        PrintedInfo::Parameters { millions, .. } => assert!(millions.is_finite() && *millions >= 0.0),
        PrintedInfo::TokensPerIteration(_)
        | PrintedInfo::Checkpoint(_)
        | PrintedInfo::Builtin(_)
        | PrintedInfo::OnCpu
        | PrintedInfo::Allocation(_)
        | PrintedInfo::Evaluating { .. } => {}
    }
}

fuzz_target!(|data: &[u8]| {
    let whole = read([data]);
    assert_eq!(read(data.chunks(1)), whole);
    let cut = data.first().map_or(0, |first| usize::from(*first)).min(data.len());
    let (head, tail) = data.split_at(cut);
    assert_eq!(read([head, tail]), whole);
    whole.iter().for_each(figures_are_figures);
    assert!(whole.iter().filter(|said| matches!(said, PrintedInfo::Config(_))).count() <= 1);
});
