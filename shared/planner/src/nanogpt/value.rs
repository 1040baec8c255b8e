//! Values of a config, and their Python notation.

use std::fmt;

use serde::Serialize;

use headroom_text::decimal;

/// A value in a config. In JSON it is a plain number, string, boolean or null.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Python's `None`.
    None,
    /// Python's `bool`.
    Bool(bool),
    /// Python's `int`, limited to 64 bits.
    Int(i64),
    /// Python's `float`.
    Float(f64),
    /// Python's `str`.
    Str(String),
    /// A list, tuple, dict, set or bytes literal as source text. It is not evaluated.
    Opaque(String),
}

impl Value {
    /// Returns Python's name of the type, as `type(x).__name__`; `"collection"` for [`Value::Opaque`].
    #[must_use]
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Str(_) => "str",
            Self::Opaque(_) => "collection",
        }
    }

    /// Returns Python's truth value, or `None` for [`Value::Opaque`].
    #[must_use]
    pub fn truthy(&self) -> Option<bool> {
        match self {
            Self::None => Some(false),
            Self::Bool(b) => Some(*b),
            Self::Int(i) => Some(*i != 0),
            Self::Float(f) => Some(*f != 0.0),
            Self::Str(s) => Some(!s.is_empty()),
            Self::Opaque(_) => None,
        }
    }

    /// Returns the result of Python's `str()`, or `None` for [`Value::Opaque`].
    #[must_use]
    pub fn to_python_str(&self) -> Option<String> {
        match self {
            Self::Str(s) => Some(s.clone()),
            Self::Float(f) if f.is_nan() => Some("nan".into()),
            Self::Float(f) if f.is_infinite() => Some(if *f > 0.0 { "inf" } else { "-inf" }.into()),
            Self::Opaque(_) => None,
            other => Some(other.to_string()),
        }
    }

    /// Returns the value as JSON. A float without a JSON number, such as `nan`, is null.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// Formats as Python source that evaluates to this value.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Bool(true) => f.write_str("True"),
            Self::Bool(false) => f.write_str("False"),
            Self::Int(i) => write!(f, "{i}"),
            Self::Float(x) => f.write_str(&float_source(*x)),
            Self::Str(s) => f.write_str(&quoted(s)),
            Self::Opaque(text) => f.write_str(text),
        }
    }
}

/// Returns Python's `repr` of a float: the shortest digits that round-trip, with an exponent of at least two digits.
fn float_source(x: f64) -> String {
    if x.is_nan() {
        return "float('nan')".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "float('inf')" } else { "float('-inf')" }.into();
    }
    decimal::shortest(x)
}

/// Returns a Python string literal in single quotes.
fn quoted(s: &str) -> String {
    // Otherwise it could close a string that a broken file left open.
    let escapes_double = s.contains("\"\"\"");
    let mut out = String::with_capacity(s.len() + 2);
    out.push('\'');
    for c in s.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\'' => out.push_str("\\'"),
            '"' if escapes_double => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' || c == '\u{7f}' => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('\'');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: &Value, expected: &str) {
        assert_eq!(value.to_string(), expected);
    }

    #[test]
    fn floats_are_written_as_python_writes_them() {
        check(&Value::Float(6e-4), "0.0006");
        check(&Value::Float(6e-5), "6e-05");
        check(&Value::Float(1e16), "1e+16");
        check(&Value::Float(1.0), "1.0");
        check(&Value::Float(-2.5e-300), "-2.5e-300");
        check(&Value::Float(f64::INFINITY), "float('inf')");
    }

    #[test]
    fn strings_are_quoted() {
        check(&Value::Str("it's\n\u{1}é\\".into()), "'it\\'s\\n\\x01é\\\\'");
    }

    #[test]
    fn constants_are_capitalised() {
        check(&Value::None, "None");
        check(&Value::Bool(true), "True");
        check(&Value::Int(-3), "-3");
    }

    #[test]
    fn json_is_the_plain_value() {
        let json = serde_json::to_string(&[
            Value::Int(3),
            Value::Float(0.5),
            Value::Str("a".into()),
            Value::None,
            Value::Bool(false),
        ]);
        assert_eq!(json.expect("plain values serialise"), r#"[3,0.5,"a",null,false]"#);
    }
}
