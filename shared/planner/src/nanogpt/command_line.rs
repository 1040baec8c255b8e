//! A single `--key=value` argument, as nanoGPT's `configurator.py` reads it: a Python literal, or else a string, with
//! the type of the existing value.

use super::defaults;
use super::parser::{Reader, UnknownReason};
use super::problem::{Problem, Severity};
use super::reason::TOO_LARGE;
use super::settings::{Origin, Setting, Settings, Span};
use super::shortened;
use super::value::Value;
use headroom_text::{self as text, Text, decimal};

/// Reads an argument into `settings`. Where nanoGPT would stop, a problem is recorded and the intended value is used.
pub(super) fn read_override(text: &str, source: usize, settings: &mut Settings) {
    let mut say = ArgumentProblems { text, said: Vec::new() };
    if let Some((key, val)) = split(text, &mut say) {
        let start = text.len() - val.len();
        let column = u32::try_from(text[..start].chars().count()).unwrap_or(u32::MAX).saturating_add(1);
        let origin = Origin { source, line: 1, column, span: Span { start, end: text.len() } };
        match choose(key, val, source, settings, &mut say) {
            Some(value) => settings.set(key, Setting { value, origin }),
            None => {
                // A word or a number means the same in a config; any other text would be computed there.
                let is_word = val.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_') && !val.starts_with('0');
                settings.set_unevaluated(key, origin, if is_word { val } else { "" });
            }
        }
    } else if let Some(key) = text.strip_prefix("--").and_then(|words| defaults::find(words.split(' ').next()?)) {
        let origin = Origin { source, line: 1, column: 1, span: Span { start: 0, end: text.len() } };
        settings.set_unevaluated(key.name, origin, "");
    }
    for problem in say.said {
        settings.problems.push(problem);
    }
}

/// Reads an argument that `train.py` printed, so nanoGPT accepted it. A fork may have other keys.
pub(super) fn read_printed(text: &str, source: usize, settings: &mut Settings) {
    let key = text.split_once('=').and_then(|(flag, val)| Some((flag.strip_prefix("--")?, val)));
    let Some((key, val)) = key.filter(|(key, _)| defaults::find(key).is_none()) else {
        return read_override(text, source, settings);
    };
    let start = text.len() - val.len();
    let origin = Origin { source, line: 1, column: 1, span: Span { start, end: text.len() } };
    let value = evaluate(val, source, settings, true).unwrap_or_else(|_| Value::Str(val.into()));
    settings.set(key, Setting { value, origin });
}

/// Collects the problems of one argument.
struct ArgumentProblems<'a> {
    text: &'a str,
    said: Vec<Problem>,
}

impl ArgumentProblems<'_> {
    fn error(&mut self, message: impl Into<Text>, hint: Option<Text>) {
        let (severity, source) = (Severity::Error, shortened(self.text));
        let message = message.into();
        self.said.push(Problem { severity, source, line: 0, column: 0, message, hint });
    }
}

fn split<'a>(text: &'a str, say: &mut ArgumentProblems<'_>) -> Option<(&'a str, &'a str)> {
    let Some((flag, val)) = text.split_once('=') else {
        let words = text.strip_prefix("--").map(|words| words.split_once(' ').unwrap_or((words, "")));
        let hint = match words {
            Some((key, value)) if !value.is_empty() => text::verbatim(format!("--{key}={value}")),
            Some((key, _)) if defaults::find(key).is_some_and(|known| known.default.type_name() == "bool") => {
                text::verbatim(format!("--{key}=True"))
            }
            _ => text::WRITE_KEY_VALUE.into(),
        };
        say.error(text::NO_EQUALS, Some(hint));
        return None;
    };
    let Some(key) = flag.strip_prefix("--") else {
        say.error(
            text::NO_DASHES,
            Some(text::verbatim(format!("--{}", say.text.trim_start_matches(['-', '\u{2013}', '\u{2014}'])))),
        );
        return defaults::find(flag).map(|_| (flag, val));
    };
    if val.contains('=') {
        say.error(text::TWO_EQUALS, None);
    }
    Some((key, val))
}

/// Returns the value to use, or `None` if Python has a value that this parser does not support.
fn choose(
    key: &str,
    val: &str,
    source: usize,
    settings: &mut Settings,
    say: &mut ArgumentProblems<'_>,
) -> Option<Value> {
    let literal = evaluate(val, source, settings, true);
    // nanoGPT compares with the current type of the value, which a config file may have changed.
    let current = settings.value(key).map(|v| v.type_name());
    let Some(expected) = current.or_else(|| defaults::find(key).map(|k| k.default.type_name())) else {
        let near = defaults::nearest(key);
        say.error(text::unknown_key(shortened(key)), near.map(|near| text::did_you_mean(format!("--{near}={val}"))));
        // The intended value is known, but the resulting run is not.
        if let Some(near) = near {
            let origin = Origin { source, line: 1, column: 1, span: Span { start: 0, end: 0 } };
            settings.set_unevaluated(near, origin, "");
        }
        return Some(literal.ok().unwrap_or_else(|| Value::Str(val.into())));
    };
    let value = match literal {
        Ok(value) => value,
        Err(NoLiteral::TooLarge) if expected == "int" => {
            say.error(text::beyond_plans(key), None);
            return None;
        }
        Err(NoLiteral::TooLarge) => {
            say.error(mismatch(key, "int", expected), None);
            return None;
        }
        Err(NoLiteral::Text) if expected == "str" => return Some(Value::Str(val.into())),
        Err(NoLiteral::Text) => return meant(key, val, source, settings, expected, say),
    };
    if value.type_name() == expected {
        return Some(value);
    }
    let hint = match expected {
        "str" => Some(text::verbatim(format!("--{key}=\"'{val}'\""))),
        _ => of_type(key, &value, expected),
    };
    say.error(mismatch(key, value.type_name(), expected), hint);
    Some(value)
}

/// Keys of at least 0 and less than 1, and an example of each.
const FRACTIONS: [(&str, &str); 3] = [("dropout", "0.2"), ("beta1", "0.9"), ("beta2", "0.95")];

/// Suggests an argument of the expected type with the same value, or one in the key's range, if possible.
fn of_type(key: &str, value: &Value, expected: &str) -> Option<Text> {
    let number = match value {
        Value::Int(i) => Some(*i as f64),
        Value::Float(f) => Some(*f),
        _ => None,
    };
    let example = FRACTIONS.iter().find(|(name, _)| *name == key).map(|(_, example)| example);
    if let (Some(number), Some(example), "float") = (number, example, expected)
        && !(0.0..1.0).contains(&number)
    {
        return Some(text::try_fraction(format!("--{key}={example}")));
    }
    let value = match (value, expected) {
        // PyTorch refuses negative rates and sizes.
        (_, "int" | "float") if number.is_some_and(|number| number < 0.0) => return None,
        (Value::Int(i), "float") => Value::Float(*i as f64).to_string(),
        (Value::Int(i), "bool") => Value::Bool(*i != 0).to_string(),
        (Value::Float(f), "int") if *f < 1e15 && *f == f.trunc() => {
            decimal::shortest(*f).trim_end_matches(".0").to_owned()
        }
        (value, expected) if value.type_name() == expected => value.to_string(),
        _ => return None,
    };
    Some(text::verbatim(format!("--{key}={value}")))
}

fn mismatch(key: &str, found: &str, expected: &str) -> Text {
    text::type_mismatch(key, expected, found)
}

/// Interprets an argument that `literal_eval` leaves a string where another type is expected. Returns `None` if it has
/// no valid meaning and memory depends on it.
fn meant(
    key: &str,
    val: &str,
    source: usize,
    settings: &mut Settings,
    expected: &str,
    say: &mut ArgumentProblems<'_>,
) -> Option<Value> {
    let value = match val.to_ascii_lowercase().as_str() {
        "true" => Some(Value::Bool(true)),
        "false" => Some(Value::Bool(false)),
        _ => evaluate(val, source, settings, false).ok(),
    };
    let value = value.filter(|v| v.type_name() == expected || (expected == "float" && v.type_name() == "int"));
    say.error(mismatch(key, "str", expected), value.as_ref().and_then(|value| of_type(key, value, expected)));
    value.or_else(|| (!defaults::decides_memory(key)).then(|| Value::Str(val.into())))
}

/// Reason why an argument has no value.
enum NoLiteral {
    /// An integer of more than 64 bits, which only Python can represent.
    TooLarge,
    /// Not Python, or an unknown value.
    Text,
}

/// Evaluates `val` as Python: only as a literal if `literal_only`, otherwise as an expression.
fn evaluate(val: &str, source: usize, settings: &mut Settings, literal_only: bool) -> Result<Value, NoLiteral> {
    let mut reader = Reader::new(val, source, settings);
    reader.literal_only = literal_only;
    let value = reader.expression().map_err(|_| NoLiteral::Text)?;
    if reader.token.is_op(",") {
        // A bare tuple: one collection, if it is valid to its end.
        while !reader.token.ends_line() {
            reader.bump();
        }
        return value.map(|_| Value::Opaque(shortened(val))).map_err(|_| NoLiteral::Text);
    }
    if !reader.token.ends_line() {
        return Err(NoLiteral::Text);
    }
    // `literal_eval` does not compute such a product.
    let digits = val.trim_matches(|c: char| c.is_whitespace() || "-+()".contains(c));
    let is_one_number = digits.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let too_large = |why: &UnknownReason<'_>| is_one_number && why.reason.what == TOO_LARGE;
    value.map_err(|why| if too_large(&why) { NoLiteral::TooLarge } else { NoLiteral::Text })
}

#[cfg(test)]
mod tests {
    use super::super::{Source, read};
    use super::*;

    /// Compares the value of the argument's key and all problems, one per line, with `expected`.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        check_after("", text, expected);
    }

    #[track_caller]
    fn check_after(file: &str, text: &str, expected: &str) {
        let key = text.trim_start_matches('-').split('=').next().unwrap_or_default();
        let settings =
            read(&[Source::File { name: "c.py".into(), text: file.into() }, Source::Override { text: text.into() }]);
        let value = settings.value(key).map_or("nothing".into(), |v| v.to_string());
        let said: Vec<String> = settings.problems.as_slice().iter().map(ToString::to_string).collect();
        assert_eq!([vec![value], said].concat().join("\n").replace("\n\n", "\n"), expected, "{text}");
    }

    #[test]
    fn literals_of_the_right_type_are_taken() {
        check("--batch_size=32", "32");
        check("--batch_size= 1_000", "1000");
        check("--batch_size=(-3)", "-3");
        check("--learning_rate=6e-4", "0.0006");
        check("--compile=False", "False");
        check("--vocab_size=65", "65");
    }

    #[test]
    fn non_literal_is_a_string() {
        check("--out_dir=out-char", "'out-char'");
        check("--out_dir='quoted'", "'quoted'");
        check("--out_dir=1+1", "'1+1'");
        check("--out_dir=--5", "'--5'");
        check("--out_dir=", "''");
        check("--out_dir=batch_size", "'batch_size'");
        check("--out_dir=data/é (1)", "'data/é (1)'");
    }

    #[test]
    fn a_wrong_type_is_said_and_the_value_is_used() {
        check(
            "--dropout=0",
            "0\n--dropout=0: nanoGPT stops: dropout must be of type float, but this is of type int\nhint: --dropout=0.0",
        );
        check(
            "--batch_size=1e3",
            "1000.0\n--batch_size=1e3: nanoGPT stops: batch_size must be of type int, but this is of type float\nhint: \
             --batch_size=1000",
        );
        check(
            "--gradient_accumulation_steps=5*8",
            "40\n--gradient_accumulation_steps=5*8: nanoGPT stops: gradient_accumulation_steps must be of type int, but this \
             is of type str\nhint: --gradient_accumulation_steps=40",
        );
        check(
            "--compile=false",
            "False\n--compile=false: nanoGPT stops: compile must be of type bool, but this is of type str\nhint: --compile=False",
        );
        check(
            "--compile=0",
            "0\n--compile=0: nanoGPT stops: compile must be of type bool, but this is of type int\nhint: --compile=False",
        );
        check(
            "--batch_size=big",
            "12\n--batch_size=big: nanoGPT stops: batch_size must be of type int, but this is of type str",
        );
    }

    #[test]
    fn suggested_value_is_in_range() {
        for (key, value, example) in [("dropout", "2", "0.2"), ("dropout", "-1", "0.2"), ("beta1", "1", "0.9")] {
            check(
                &format!("--{key}={value}"),
                &format!(
                    "{value}\n--{key}={value}: nanoGPT stops: {key} must be of type float, but this is of type int\nhint: give a \
                     number of at least 0 and less than 1, such as --{key}={example}"
                ),
            );
        }
        check(
            "--learning_rate=-1",
            "-1\n--learning_rate=-1: nanoGPT stops: learning_rate must be of type float, but this is of type int",
        );
        check(
            "--learning_rate=1+1",
            "2\n--learning_rate=1+1: nanoGPT stops: learning_rate must be of type float, but this is of type str\nhint: \
             --learning_rate=2.0",
        );
    }

    #[test]
    fn a_whole_number_is_one_however_long() {
        let beyond = "is a whole number beyond 64 bits, too large for a plan";
        for digits in
            ["9223372036854775808", "99999999999999999999999999", "-99999999999999999999", "0xFFFFFFFFFFFFFFFFFF"]
        {
            let text = format!("--batch_size={digits}");
            check(&text, &format!("12\n{text}: batch_size {beyond}"));
        }
        check("--batch_size=9223372036854775807", "9223372036854775807");
        check("--batch_size=-9223372036854775808", "-9223372036854775808");
        let of_type_str = "nanoGPT stops: batch_size must be of type int, but this is of type str";
        check("--batch_size=2**99", &format!("12\n--batch_size=2**99: {of_type_str}"));
        let type_error = "learning_rate must be of type float, but this is of type int";
        check(
            "--learning_rate=9223372036854775808",
            &format!("0.0006\n--learning_rate=9223372036854775808: nanoGPT stops: {type_error}"),
        );
    }

    #[test]
    fn the_type_is_that_of_the_value_so_far() {
        check_after("dropout = 0", "--dropout=1", "1");
        check_after(
            "dropout = 0",
            "--dropout=0.1",
            "0.1\n--dropout=0.1: nanoGPT stops: dropout must be of type int, but this is of type float",
        );
        check_after("_mine = 'a'", "--_mine=b", "'b'");
    }

    #[test]
    fn an_unknown_key_is_named_and_kept() {
        check(
            "--batch-size=4",
            "4\n--batch-size=4: nanoGPT stops: ValueError: Unknown config key: batch-size\nhint: did you mean --batch_size=4?",
        );
        check("--gpus=4", "4\n--gpus=4: nanoGPT stops: ValueError: Unknown config key: gpus");
    }

    #[test]
    fn malformed_arguments() {
        check("--compile", "True\n--compile: nanoGPT stops: this argument has no `=`\nhint: --compile=True");
        check(
            "batch_size=4",
            "4\nbatch_size=4: nanoGPT stops: an argument with `=` must start with `--`\nhint: --batch_size=4",
        );
        check("--out_dir=a=b", "'a=b'\n--out_dir=a=b: nanoGPT stops: there is more than one `=`");
        check(
            "",
            "nothing\n: nanoGPT stops: this argument has no `=`\nhint: give the setting a value, as in --key=value",
        );
        check(
            "--batch_size 64",
            "nothing\n--batch_size 64: nanoGPT stops: this argument has no `=`\nhint: --batch_size=64",
        );
    }

    #[test]
    fn the_last_one_wins() {
        let settings = read(&[
            Source::Override { text: "--batch_size=4".into() },
            Source::File { name: "c.py".into(), text: "batch_size = 8".into() },
        ]);
        assert_eq!(settings.value("batch_size"), Some(Value::Int(8)));
        assert_eq!(settings.values["batch_size"].origin.source, 1);
    }
}
