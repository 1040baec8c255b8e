//! Prometheus' text format, version 0.0.4.

use std::fmt::Write as _;

use super::table::Family;

/// A text that grows family by family.
#[derive(Debug, Default)]
pub struct Text {
    text: String,
    family: Option<&'static str>,
}

impl Text {
    /// Adds a value; those of one family follow each other.
    pub fn one(&mut self, family: &Family, labels: &[(&str, &str)], value: f64) {
        let Family { name, kind, help } = *family;
        if self.family != Some(name) {
            self.family = Some(name);
            let _ = writeln!(self.text, "# HELP {name} {}\n# TYPE {name} {}", escaped(help, false), kind.name());
        }
        self.text.push_str(name);
        if !labels.is_empty() {
            let labels: Vec<String> =
                labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value, true))).collect();
            let _ = write!(self.text, "{{{}}}", labels.join(","));
        }
        let _ = writeln!(self.text, " {}", Number(value));
    }

    /// The whole.
    pub fn finish(self) -> String {
        self.text
    }
}

/// Backslashes and ends of lines; in a label's value quotes too.
fn escaped(text: &str, in_quotes: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if in_quotes { text.replace('"', "\\\"") } else { text }
}

/// As Go reads it.
struct Number(f64);

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            value if value.is_nan() => f.write_str("NaN"),
            f64::INFINITY => f.write_str("+Inf"),
            f64::NEG_INFINITY => f.write_str("-Inf"),
            value => write!(f, "{value}"),
        }
    }
}
