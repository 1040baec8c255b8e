//! A value as indented JSON.
//!
//! serde_json would do, and brings eleven kilobytes of tables that no compression shrinks, for floats that the standard
//! library writes as short.

use headroom_shared::decimal;
use serde_json::Value;

/// The value, indented by two spaces.
pub fn pretty(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value, 0);
    out
}

/// A number as it stands in JSON and in a field.
pub fn number(number: &serde_json::Number) -> String {
    match (number.as_u64(), number.as_i64(), number.as_f64()) {
        (Some(number), ..) => number.to_string(),
        (None, Some(number), _) => number.to_string(),
        (None, None, Some(number)) => decimal::shortest(number),
        (None, None, None) => String::new(),
    }
}

fn write(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
        Value::Number(value) => out.push_str(&number(value)),
        Value::String(text) => string(out, text),
        Value::Array(items) => {
            list(out, "[]", depth, items.iter(), |out, item| write(out, item, depth + 1));
        }
        Value::Object(entries) => {
            list(out, "{}", depth, entries.iter(), |out, (key, value)| {
                string(out, key);
                out.push_str(": ");
                write(out, value, depth + 1);
            });
        }
    }
}

fn list<T>(
    out: &mut String,
    brackets: &str,
    depth: usize,
    items: impl ExactSizeIterator<Item = T>,
    write: impl Fn(&mut String, T),
) {
    if items.len() == 0 {
        return out.push_str(brackets);
    }
    let (open, close) = brackets.split_at(1);
    out.push_str(open);
    for (index, item) in items.enumerate() {
        out.push_str(if index > 0 { ",\n" } else { "\n" });
        indent(out, depth + 1);
        write(out, item);
    }
    out.push('\n');
    indent(out, depth);
    out.push_str(close);
}

fn indent(out: &mut String, depth: usize) {
    for _ in 0..depth {
        out.push_str("  ");
    }
}

fn string(out: &mut String, text: &str) {
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            char if char < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(char))),
            char => out.push(char),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::answer::Answer;
    use headroom_shared::advice::Advice;

    #[test]
    fn a_plan_reads_back_as_it_was() {
        let text = "compile = False\nbatch_size = 64\nout_dir = 'a\\n\"b\"\\\\ü\\x01'\nx = [1]\n";
        let answer = Answer::of_text(text);
        let document =
            answer.plan().expect("a plan").document(&answer.resolved.config, &Advice::default(), crate::text::table());
        let value = serde_json::to_value(&document).expect("a document");
        let read: Value = serde_json::from_str(&pretty(&value)).expect("valid JSON");
        assert!(read == value);
        let mut written: Vec<String> = pretty(&value).lines().map(str::to_owned).collect();
        // The two write small floats each in its own way.
        written.retain(|line| !line.contains("min_lr"));
        let mut expected: Vec<String> =
            serde_json::to_string_pretty(&value).expect("a value").lines().map(str::to_owned).collect();
        expected.retain(|line| !line.contains("min_lr"));
        assert!(written == expected);
    }

    #[test]
    fn floats_read_back() {
        for float in [6e-4, 0.1, 1e-5, 1.0, 0.0, -2.5, 1e300] {
            let text = pretty(&Value::from(float));
            assert_eq!(text.parse(), Ok(float), "{text}");
        }
    }
}
