//! Prometheus' text format, version 0.0.4: families, samples, and what may not stand in a label.

use std::{collections::BTreeSet, fmt::Write};

use headroom_shared::protocol::reading::Reading;

use super::Family;

/// Characters of a label's value at most: whoever names a process must not make every scrape long.
const LABEL_CHARS_MAX: usize = 128;

/// What a sample may be.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// Written to the last digit.
    Whole(u64),
    /// Only if it is a number.
    Real(f64),
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Whole(u64::from(value))
    }
}

/// A whole reading.
pub fn whole(reading: &Reading<u64>) -> Option<Value> {
    reading.get().copied().map(Value::Whole)
}

/// A reading in its unit.
pub fn real(reading: &Reading<f64>) -> Option<Value> {
    reading.get().copied().map(Value::Real)
}

/// Percent as a ratio.
pub fn ratio(reading: &Reading<u64>) -> Option<Value> {
    reading.get().map(|percent| Value::Real(*percent as f64 / 100.0))
}

/// Megahertz as hertz.
pub fn hertz(reading: &Reading<u64>) -> Option<Value> {
    reading.get().map(|mhz| Value::Whole(mhz.saturating_mul(1_000_000)))
}

/// Milliseconds as seconds.
pub fn seconds(ms: u64) -> Value {
    Value::Real(ms as f64 / 1000.0)
}

/// The samples of one family. Those that have no value, and a second one of the same labels, are left out: either would
/// cost Prometheus the whole text.
#[derive(Debug)]
pub struct Samples {
    family: &'static Family,
    lines: String,
    seen: BTreeSet<String>,
}

impl Samples {
    pub(super) fn of(family: &'static Family) -> Self {
        Self { family, lines: String::new(), seen: BTreeSet::new() }
    }

    /// Adds a sample: the labels' values in the order of the family's labels.
    pub fn add<S: AsRef<str>>(&mut self, values: &[S], value: Option<Value>) {
        debug_assert_eq!(values.len(), self.family.labels.len(), "{} has other labels", self.family.name);
        let number = match value {
            None => return,
            Some(Value::Whole(value)) => value.to_string(),
            Some(Value::Real(value)) if value.is_finite() => value.to_string(),
            Some(Value::Real(_)) => return,
        };
        let labels = labels(self.family.labels, values);
        if self.seen.contains(&labels) {
            return;
        }
        // Writing to a string cannot fail.
        let _ = writeln!(self.lines, "{}{labels} {number}", self.family.name);
        self.seen.insert(labels);
    }

    /// Adds the sample of a family without labels.
    pub fn add_one(&mut self, value: Option<Value>) {
        self.add::<&str>(&[], value);
    }

    /// Writes the family, unless it has no sample.
    pub(super) fn write(&self, text: &mut String) {
        if self.lines.is_empty() {
            return;
        }
        let Family { name, kind, help, .. } = self.family;
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {}\n{}", kind.name(), self.lines);
    }
}

fn labels<S: AsRef<str>>(names: &[&str], values: &[S]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let pairs: Vec<_> =
        names.iter().zip(values).map(|(name, value)| format!("{name}=\"{}\"", escaped(value.as_ref()))).collect();
    format!("{{{}}}", pairs.join(","))
}

/// A label's value: cut, and with what would end it escaped. Other control characters say nothing, and a zero byte ends
/// the whole text for Prometheus' reader.
fn escaped(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for char in value.chars().take(LABEL_CHARS_MAX) {
        match char {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            control if control.is_control() => escaped.push(char::REPLACEMENT_CHARACTER),
            other => escaped.push(other),
        }
    }
    escaped
}
