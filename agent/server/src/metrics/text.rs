//! Prometheus' text format, version 0.0.4: families, samples, and escaping of labels.

use std::{collections::BTreeSet, fmt::Write};

use headroom_protocol::{metric::Number as Value, reading::Reading};

use super::Family;

/// The maximum length of a label's value in characters, because processes choose their own names.
const LABEL_CHARS_MAX: usize = 128;

/// Returns the value of an integer reading.
pub fn whole(reading: &Reading<u64>) -> Option<Value> {
    reading.get().copied().map(Value::Whole)
}

/// Returns the value of a real reading.
pub fn real(reading: &Reading<f64>) -> Option<Value> {
    reading.get().copied().map(Value::Real)
}

/// Converts megahertz to hertz.
pub fn hertz(reading: &Reading<u64>) -> Option<Value> {
    reading.get().map(|mhz| Value::Whole(mhz.saturating_mul(1_000_000)))
}

/// Converts milliseconds to seconds.
pub fn seconds(ms: u64) -> Value {
    Value::Real(ms as f64 / 1000.0)
}

/// The samples of one family. Samples without a value and samples with duplicate labels are omitted, because Prometheus
/// would reject the whole text.
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

    pub(super) const fn family(&self) -> &'static Family {
        self.family
    }

    /// Adds a sample; `values` are in the order of the family's labels.
    pub fn add<S: AsRef<str>>(&mut self, values: &[S], value: Option<Value>) {
        debug_assert_eq!(values.len(), self.family.labels.len(), "{} has different labels", self.family.name);
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

    /// Writes the family, unless it has no samples.
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

/// Truncates and escapes a label's value. Other control characters are replaced, because Prometheus' parser stops at a
/// zero byte.
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
