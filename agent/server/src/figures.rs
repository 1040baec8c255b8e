//! A run's figures as CSV, for the command line and the server.

use std::fmt::Write as _;

use headroom_agent_core::store::printed::{Figures, PrintedLine};

/// The header row.
///
/// `kind` is `iteration`, `evaluation` or `left_out`. `printed_at_unix_ms` is the time in milliseconds since 1970.
/// `iteration_time_ms` is the duration of an iteration. A row `left_out` represents at least `lines_left_out` lines
/// that were printed at that time and not stored. A loss may be `NaN`, `inf` or `-inf`, which pandas and NumPy read as
/// numbers. Other missing figures are empty.
pub const HEAD: &str = "kind,printed_at_unix_ms,iter,loss,iteration_time_ms,tokens_per_second,mfu_printed_percent,\
                        mfu_percent,train_loss,val_loss,learning_rate,gradient_norm,lines_left_out\n";

/// Appends the row of a line. All fields are numbers or empty, so none needs quotes.
pub fn add_row(csv: &mut String, PrintedLine { at_ms, figures }: &PrintedLine) {
    // Writing to a `String` cannot fail.
    let _ = match figures {
        Figures::Iteration(it) => {
            // A line whose time is unknown has 0.
            let time_ms = Some(it.time_ms).filter(|time_ms| *time_ms > 0.0);
            let speed = [time_ms, it.tokens_per_second, it.mfu_printed_percent, it.mfu_percent];
            let [time, tokens, mfu_printed, mfu] = speed.map(field);
            let loss = loss(it.loss);
            let [rate, norm] = [it.learning_rate, it.gradient_norm].map(field);
            writeln!(csv, "iteration,{at_ms},{},{loss},{time},{tokens},{mfu_printed},{mfu},,,{rate},{norm},", it.iter)
        }
        Figures::Evaluation(it) => {
            let [train, val] = [it.train_loss, it.val_loss].map(loss);
            writeln!(csv, "evaluation,{at_ms},{},,,,,,{train},{val},,,", it.iter)
        }
        Figures::LeftOut(n) => writeln!(csv, "left_out,{at_ms},,,,,,,,,,,{n}"),
    };
}

/// Formats a loss, which each line of its kind has.
fn loss(value: Option<f64>) -> String {
    value.unwrap_or(f64::NAN).to_string()
}

/// Formats a number; empty if it is missing.
pub fn field(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use headroom_protocol::run::{Evaluation, Iteration};

    use super::*;

    #[test]
    fn every_row_has_the_columns_of_the_head() {
        let iteration = Iteration {
            iter: 7,
            loss: None,
            time_ms: 1.5,
            tokens_per_second: Some(1e3),
            mfu_printed_percent: None,
            mfu_percent: Some(0.25),
            learning_rate: Some(6e-4),
            gradient_norm: Some(0.5),
        };
        let evaluation = Evaluation { iter: 8, train_loss: Some(2.5), val_loss: Some(f64::NEG_INFINITY) };
        let mut csv = String::new();
        for figures in [Figures::Iteration(iteration), Figures::Evaluation(evaluation), Figures::LeftOut(12)] {
            add_row(&mut csv, &PrintedLine { at_ms: 9, figures });
        }
        assert_eq!(
            csv,
            "iteration,9,7,NaN,1.5,1000,,0.25,,,0.0006,0.5,\nevaluation,9,8,,,,,,2.5,-inf,,,\nleft_out,9,,,,,,,,,,,12\n"
        );
        let unknown = Iteration { time_ms: 0.0, ..iteration };
        let mut row = String::new();
        add_row(&mut row, &PrintedLine { at_ms: 9, figures: Figures::Iteration(unknown) });
        assert_eq!(row, "iteration,9,7,NaN,,1000,,0.25,,,0.0006,0.5,\n");
        for row in csv.lines() {
            assert_eq!(row.matches(',').count(), HEAD.matches(',').count(), "{row}");
        }
    }
}
