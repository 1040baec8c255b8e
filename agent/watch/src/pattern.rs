//! User-defined pattern for trainers that do not print as nanoGPT does.

use std::fmt;

use headroom_protocol::run::{Evaluation, Iteration};
use regex::{Regex, RegexBuilder};
use thiserror::Error;

/// Names of the recognised groups.
pub const GROUPS: [&str; 5] = ["iter", "loss", "val_loss", "time_ms", "tokens_per_second"];

/// Size limit of a compiled pattern: about a thousand times that of a one-line pattern.
const COMPILED_BYTES_MAX: usize = 4 << 20;

/// Why a pattern is invalid.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// The text is not a regular expression.
    #[error("{0}")]
    Regex(String),
    /// A group has an unknown name.
    #[error("the group {0:?} means nothing here; groups are named {list}", list = GROUPS.join(", "))]
    Group(String),
    /// The pattern has no group for a loss.
    #[error("nothing is read by it: it needs a group (?<loss>…) or (?<val_loss>…)")]
    NoLoss,
}

/// A regular expression with the state of its matches.
#[derive(Clone, Debug)]
pub struct Pattern {
    regex: Regex,
    n_matches: u64,
    /// Newest iteration, and the time of its line.
    last: Option<(u64, f64)>,
    /// First iteration, held until the second one determines its duration.
    first: Option<Iteration>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineFigures {
    /// Iterations; two if the second determines the duration of the first.
    pub iterations: Vec<Iteration>,
    /// Evaluation, if the line has a validation loss.
    pub evaluation: Option<Evaluation>,
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.regex.as_str())
    }
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// The text is not a regular expression, or has no useful group.
    pub fn new(text: &str) -> Result<Self, Error> {
        let regex = RegexBuilder::new(text).size_limit(COMPILED_BYTES_MAX).build();
        let regex = regex.map_err(|error| Error::Regex(error.to_string()))?;
        if let Some(other) = regex.capture_names().flatten().find(|name| !GROUPS.contains(name)) {
            return Err(Error::Group(other.to_owned()));
        }
        if !regex.capture_names().flatten().any(|name| matches!(name, "loss" | "val_loss")) {
            return Err(Error::NoLoss);
        }
        Ok(Self { regex, n_matches: 0, last: None, first: None })
    }

    /// Parses a line that arrived `now_ms` after the start. `None` if it does not match.
    ///
    /// Without a group `iter`, matches are counted. Without `time_ms`, the time between two lines is the iteration's
    /// duration.
    pub fn line(&mut self, line: &str, now_ms: f64) -> Option<LineFigures> {
        let groups = self.regex.captures(line)?;
        let number = |name| groups.name(name).and_then(|group| number(group.as_str()));
        let iter = match groups.name("iter") {
            Some(iter) => plain(iter.as_str()).parse().ok()?,
            None => self.n_matches,
        };
        // A loss may be infinite; NaN is `None`.
        let (loss, val_loss) = (number("loss"), number("val_loss"));
        let finite = |name| number(name).filter(|number| number.is_finite());
        let tokens_per_second = finite("tokens_per_second");
        let printed_ms = finite("time_ms").filter(|time| *time >= 0.0);
        let (has_loss, has_val_loss) = (groups.name("loss").is_some(), groups.name("val_loss").is_some());
        self.n_matches += 1;
        if has_val_loss {
            return Some(LineFigures {
                evaluation: Some(Evaluation { iter, train_loss: loss, val_loss }),
                ..LineFigures::default()
            });
        }
        if !has_loss {
            return Some(LineFigures::default());
        }
        let between = self.last.replace((iter, now_ms)).and_then(|(before, then_ms)| {
            let n_iterations = iter.checked_sub(before).filter(|n| *n > 0)?;
            Some((now_ms - then_ms).max(0.0) / n_iterations as f64)
        });
        let mut iteration = Iteration {
            iter,
            loss,
            time_ms: 0.0,
            tokens_per_second: tokens_per_second.filter(|rate| *rate >= 0.0),
            mfu_printed_percent: None,
            mfu_percent: None,
            ..Iteration::default()
        };
        let mut iterations = vec![];
        match printed_ms.or(between) {
            Some(time_ms) => {
                iterations.extend(self.first.take().map(|first| Iteration { time_ms, ..first }));
                iteration.time_ms = time_ms;
                iterations.push(iteration);
            }
            // The second iteration determines its duration.
            None => self.first = Some(iteration),
        }
        Some(LineFigures { iterations, evaluation: None })
    }
}

/// A number without thousands separators.
fn plain(text: &str) -> String {
    text.trim().replace([',', '_'], "")
}

fn number(text: &str) -> Option<f64> {
    plain(text).parse().ok().filter(|number: &f64| !number.is_nan())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iteration(iter: u64, loss: Option<f64>, time_ms: f64) -> Iteration {
        Iteration {
            iter,
            loss,
            time_ms,
            tokens_per_second: None,
            mfu_printed_percent: None,
            mfu_percent: None,
            ..Iteration::default()
        }
    }

    #[test]
    fn a_pattern_says_what_is_wrong_with_it() {
        assert!(matches!(Pattern::new("loss ("), Err(Error::Regex(_))));
        assert!(
            matches!(Pattern::new("(?<loss>(((((\\w{99}){99}){99}){99}){99}))"), Err(Error::Regex(_))),
            "too large"
        );
        assert_eq!(Pattern::new("(?<loss>.*) (?<step>.*)").err(), Some(Error::Group("step".to_owned())));
        assert_eq!(Pattern::new("(?<iter>[0-9]+)").err(), Some(Error::NoLoss));
        assert!(Error::Group("x".to_owned()).to_string().ends_with("iter, loss, val_loss, time_ms, tokens_per_second"));
    }

    #[test]
    fn lines_of_llm_c() {
        let text = r"step\s+(?<iter>\d+)/\d+ \| loss (?<loss>\S+) .*\| (?<time_ms>\S+) ms .*\| (?<tokens_per_second>\d+) tok/s";
        let mut pattern = Pattern::new(text).expect("a pattern");
        let line = "step    3/19560 | loss 10.2534 (+nanz)| norm 15.32 (+nanz)| lr 2.57e-06 | 291.50 ms | 41.6% bf16 MFU | 1798592 tok/s";
        let read = pattern.line(line, 0.0).expect("it is one");
        let expected = Iteration { tokens_per_second: Some(1_798_592.0), ..iteration(3, Some(10.2534), 291.5) };
        assert_eq!(read.iterations, [expected]);
        assert_eq!(pattern.line("val loss 3.2", 0.0), None);
    }

    #[test]
    fn a_loss_of_validation_is_an_evaluation() {
        let mut pattern =
            Pattern::new(r"epoch (?<iter>[\d,]+): (train (?<loss>\S+) )?val (?<val_loss>\S+)").expect("one");
        let read = pattern.line("epoch 1,000: train 2.5 val nan", 0.0).expect("it is one").evaluation;
        assert_eq!(read, Some(Evaluation { iter: 1000, train_loss: Some(2.5), val_loss: None }));
        let read = pattern.line("epoch 2: val 1.5", 0.0).expect("it is one").evaluation;
        assert_eq!(read, Some(Evaluation { iter: 2, train_loss: None, val_loss: Some(1.5) }));
        assert_eq!(pattern.line("epoch x: val 1.5", 0.0), None);
    }

    #[test]
    fn time_is_measured_where_it_is_not_printed() {
        let mut pattern = Pattern::new("loss=(?<loss>[^ ]+)").expect("a pattern");
        assert_eq!(pattern.line("loss=4", 9_000.0).expect("one").iterations, [], "its time is not known yet");
        let second = pattern.line("loss=nan", 9_250.0).expect("one").iterations;
        assert_eq!(second, [iteration(0, Some(4.0), 250.0), iteration(1, None, 250.0)]);
        let mut numbered = Pattern::new(r"(?<iter>\d+) (?<loss>\S+)").expect("a pattern");
        numbered.line("10 4.0", 0.0);
        let next = numbered.line("30 3.0", 1_000.0).expect("one").iterations;
        assert_eq!(next, [iteration(10, Some(4.0), 50.0), iteration(30, Some(3.0), 50.0)]);
    }
}
