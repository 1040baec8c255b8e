//! Any bytes as what a training run prints, in any pieces: they say the same however they are cut, and little is kept.
#![no_main]

use headroom_shared::nanogpt::{
    from_pasted_text,
    printed::{Lines, MAX_CONFIG_BYTES, MAX_LINE_BYTES, Printed, Reader},
};
use libfuzzer_sys::fuzz_target;

/// What is said, and that no line is longer than it may be.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Printed> {
    let (mut lines, mut reader, mut all) = (Lines::default(), Reader::default(), vec![]);
    let mut take = |line: &str| {
        // A byte that is no text becomes a character of three.
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

fn figures_are_figures(said: &Printed) {
    let is_figure = |figure: Option<f64>| figure.is_none_or(f64::is_finite);
    match said {
        Printed::Config(text) => {
            assert!(text.len() <= MAX_CONFIG_BYTES);
            let _ = from_pasted_text("log", text).read();
        }
        Printed::Iteration(it) => {
            assert!(is_figure(it.loss) && it.time_ms.is_finite() && it.time_ms >= 0.0);
            assert!(is_figure(it.tokens_per_second) && is_figure(it.mfu_printed_percent));
            assert!(is_figure(it.learning_rate) && is_figure(it.gradient_norm) && is_figure(it.mfu_percent));
        }
        Printed::Evaluation(at) => assert!(is_figure(at.train_loss) && is_figure(at.val_loss)),
        Printed::Parameters { millions, .. } => assert!(millions.is_finite() && *millions >= 0.0),
        Printed::TokensPerIteration(_)
        | Printed::Checkpoint(_)
        | Printed::Builtin(_)
        | Printed::OnCpu
        | Printed::Allocation(_)
        | Printed::Evaluating { .. }
        | Printed::Recompute(_) => {}
    }
}

fuzz_target!(|data: &[u8]| {
    let whole = read([data]);
    assert_eq!(read(data.chunks(1)), whole);
    let cut = data.first().map_or(0, |first| usize::from(*first)).min(data.len());
    let (head, tail) = data.split_at(cut);
    assert_eq!(read([head, tail]), whole);
    whole.iter().for_each(figures_are_figures);
    assert!(whole.iter().filter(|said| matches!(said, Printed::Config(_))).count() <= 1);
});
