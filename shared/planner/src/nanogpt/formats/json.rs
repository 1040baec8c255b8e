//! Small JSON parser for pasted texts.
//!
//! serde_json would add five kilobytes to the calculator's initial download, mostly for numbers and errors.

use crate::nanogpt::Value;
use headroom_text::decimal;

/// Maximum nesting depth.
const MAX_DEPTH: u32 = 64;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json {
    Null,
    /// A string, a number or a boolean.
    Scalar(Value),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl Json {
    /// Parses a whole text. Returns `None` if it is not JSON.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut reader = Reader { rest: skip_space(text) };
        let value = reader.value(0)?;
        reader.rest.is_empty().then_some(value)
    }

    /// Returns the value of a name; the last one if it is repeated, as in Python.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(entries) = self else { return None };
        entries.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Scalar(Value::Str(text)) => Some(text),
            _ => None,
        }
    }

    pub(super) fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Scalar(Value::Int(int)) => u64::try_from(*int).ok(),
            _ => None,
        }
    }
}

struct Reader<'a> {
    rest: &'a str,
}

/// The text after JSON's white space, which is less than Unicode's.
fn skip_space(text: &str) -> &str {
    text.trim_start_matches([' ', '\t', '\n', '\r'])
}

/// Whether a text is a number of JSON: no leading zero or plus, and digits on both sides of a point.
fn is_number(text: &str) -> bool {
    let text = text.strip_prefix('-').unwrap_or(text);
    let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    are_digits(whole)
        && are_digits(fraction)
        && are_digits(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))
        && (whole == "0" || !whole.starts_with('0'))
}

impl Reader<'_> {
    /// Consumes a sign and the white space after it.
    fn take(&mut self, sign: &str) -> bool {
        let rest = self.rest.strip_prefix(sign).map(skip_space);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn value(&mut self, depth: u32) -> Option<Json> {
        if depth > MAX_DEPTH {
            return None;
        }
        for (word, value) in [
            ("null", Json::Null),
            ("true", Json::Scalar(Value::Bool(true))),
            ("false", Json::Scalar(Value::Bool(false))),
        ] {
            if self.take(word) {
                return Some(value);
            }
        }
        match self.rest.as_bytes().first()? {
            b'"' => Some(Json::Scalar(Value::Str(self.string()?))),
            b'{' => {
                let mut entries = Vec::new();
                self.items("{", "}", |reader| {
                    let name = reader.string()?;
                    let value = if reader.take(":") { reader.value(depth + 1) } else { None };
                    entries.push((name, value?));
                    Some(())
                })?;
                Some(Json::Object(entries))
            }
            b'[' => {
                let mut items = Vec::new();
                self.items("[", "]", |reader| {
                    items.push(reader.value(depth + 1)?);
                    Some(())
                })?;
                Some(Json::List(items))
            }
            _ => self.number(),
        }
    }

    fn items(&mut self, open: &str, close: &str, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        if !self.take(open) || self.take(close) {
            return Some(());
        }
        loop {
            item(self)?;
            if self.take(close) {
                return Some(());
            }
            if !self.take(",") {
                return None;
            }
        }
    }

    fn number(&mut self) -> Option<Json> {
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(end);
        self.rest = skip_space(rest);
        if !is_number(text) {
            return None;
        }
        let value = text.parse().map(Value::Int).ok().or_else(|| {
            let float = decimal::parse(text)?;
            float.is_finite().then_some(Value::Float(float))
        })?;
        Some(Json::Scalar(value))
    }

    fn string(&mut self) -> Option<String> {
        let mut string = String::new();
        let mut chars = self.rest.strip_prefix('"')?.chars();
        loop {
            match chars.next()? {
                '"' => break,
                '\\' => string.push(match chars.next()? {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    'b' => '\u{8}',
                    'f' => '\u{c}',
                    'u' => {
                        let mut unit = code_unit(&mut chars)?;
                        if (0xd800..0xdc00).contains(&unit) {
                            chars = chars.as_str().strip_prefix("\\u")?.chars();
                            let low = code_unit(&mut chars)?.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
                            unit = 0x1_0000 + ((unit - 0xd800) << 10) + low;
                        }
                        char::from_u32(unit)?
                    }
                    char @ ('"' | '\\' | '/') => char,
                    _ => return None,
                }),
                '\0'..' ' => return None,
                char => string.push(char),
            }
        }
        self.rest = skip_space(chars.as_str());
        Some(string)
    }
}

/// The four hexadecimal digits of a `\u` escape.
fn code_unit(chars: &mut std::str::Chars<'_>) -> Option<u32> {
    (0..4).try_fold(0, |unit, _| Some(unit * 16 + chars.next()?.to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn same(ours: &Json, theirs: &serde_json::Value) -> bool {
        match (ours, theirs) {
            (Json::Null, serde_json::Value::Null) => true,
            (Json::Scalar(Value::Bool(ours)), serde_json::Value::Bool(theirs)) => ours == theirs,
            (Json::Scalar(Value::Str(ours)), serde_json::Value::String(theirs)) => ours == theirs,
            (Json::Scalar(Value::Int(ours)), serde_json::Value::Number(theirs)) => {
                // -0 is a float for serde_json, an integer for Python.
                theirs.as_i64() == Some(*ours) || (*ours == 0 && theirs.as_f64() == Some(0.0))
            }
            (Json::Scalar(Value::Float(ours)), serde_json::Value::Number(theirs)) => {
                // serde_json's default float parser is off by one unit in the last place for a few numbers, and by two
                // for fewer, such as 50303380546127.85670e76.
                theirs.as_f64().is_some_and(|theirs| theirs.to_bits().abs_diff(ours.to_bits()) <= 2)
            }
            (Json::List(ours), serde_json::Value::Array(theirs)) => {
                ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(ours, theirs)| same(ours, theirs))
            }
            (Json::Object(_), serde_json::Value::Object(theirs)) => {
                theirs.iter().all(|(name, theirs)| ours.get(name).is_some_and(|ours| same(ours, theirs)))
            }
            _ => false,
        }
    }

    #[test]
    fn json_reads_as_serde_json_reads_it() {
        for text in [
            r#" {"a": [1, -2.5, true, null, {}], "b": "x\n\"y\" \u00fc", "a b": {"c": []}} "#,
            "[]",
            "{\"n\": 1e-5}",
            "\"x\"",
        ] {
            let theirs = serde_json::from_str(text).expect("valid");
            assert!(Json::read(text).is_some_and(|ours| same(&ours, &theirs)), "{text}");
        }
        for text in ["", "{", "{\"a\" 1}", "[1,]", "[1 2]", "{} x", "\"a", "nul", "-", &"[".repeat(100_000)] {
            assert_eq!(Json::read(text), None, "{}", &text[..text.len().min(20)]);
        }
    }

    /// Compares a text's value, or its refusal.
    fn compare(text: &str) -> Result<(), TestCaseError> {
        let theirs = serde_json::from_str::<serde_json::Value>(text).ok();
        match (Json::read(text), &theirs) {
            (None, None) => Ok(()),
            (Some(ours), Some(theirs)) if same(&ours, theirs) => Ok(()),
            (ours, _) => Err(TestCaseError::fail(format!("{text:?}: {ours:?} instead of {theirs:?}"))),
        }
    }

    #[test]
    fn json_treats_doubtful_texts_as_serde_json() {
        for text in [
            "+1",
            "01",
            "-01",
            "1.",
            ".5",
            "1e",
            "1e+",
            "--1",
            "1e400",
            "0x1",
            "inf",
            "nan",
            "-0",
            "-0.0",
            "0e5",
            "1E5",
            "9223372036854775807",
            "9223372036854775808",
            "-9223372036854775809",
            "123456789012345678901234567890",
            r#""\q""#,
            r#""\u+123""#,
            r#""\u12""#,
            r#""\ud83d""#,
            r#""\ud83dx""#,
            r#""\ud83d\u0041""#,
            r#""\udc00""#,
            r#""\ud83d\ude00""#,
            r#""\/\\\"\b\f""#,
            "\"a\nb\"",
            "\"a\tb\"",
            "\"\u{7f}\"",
            "\u{a0}1",
            "1\u{2003}",
            "[1,\u{b}2]",
            "\u{feff}1",
            "nullx",
            "[truefalse]",
            "{\"a\":1,}",
            "{,}",
            "{a:1}",
            "{1:1}",
            "[,1]",
            "'a'",
            "{\"a\":1,\"a\":2}",
            "50303380546127.85670e76",
        ] {
            compare(text).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    /// A number as people write it, not always JSON.
    const NUMBER: &str = "[-+]?[0-9]{0,20}(\\.[0-9]{0,18})?([eE][-+]?[0-9]{0,3})?";
    /// The inside of a string, not always JSON.
    const STRING: &str =
        "\"([a-z ü😀\u{1}-\u{20}]|\\\\[\"\\\\/bfnrtux]|\\\\u[dD][89a-f][0-9a-f]{2}|\\\\u[0-9a-f]{4}){0,8}\"";

    /// Text of nested values; some are not JSON.
    fn texts() -> impl Strategy<Value = String> {
        let space = "[ \\n\\t\\r]?";
        let scalar =
            prop_oneof![Just("null".to_owned()), Just("true".to_owned()), Just("false".to_owned()), NUMBER, STRING];
        let value = scalar.prop_recursive(4, 32, 4, move |inner| {
            let items = proptest::collection::vec((space, inner.clone(), space), 0..4);
            let entries = proptest::collection::vec((space, STRING, space, inner, space), 0..4);
            prop_oneof![
                items.prop_map(|items| {
                    let items: Vec<_> = items.into_iter().map(|(a, b, c)| a + &b + &c).collect();
                    format!("[{}]", items.join(","))
                }),
                entries.prop_map(|entries| {
                    let entry = |(a, key, b, value, c)| format!("{a}{key}{b}:{value}{c}");
                    format!("{{{}}}", entries.into_iter().map(entry).collect::<Vec<_>>().join(","))
                }),
            ]
        });
        (space, value, space).prop_map(|(a, value, b)| a + &value + &b)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn json_reads_generated_texts_as_serde_json(text in texts()) {
            compare(&text)?;
        }

        /// Any characters of JSON in any order.
        #[test]
        fn json_reads_any_characters_as_serde_json(text in "[\\[\\]{}\",:0-9a-u\\\\ ü.+E-]{0,30}") {
            compare(&text)?;
        }

        /// A character is changed in a text that is JSON.
        #[test]
        fn json_reads_changed_texts_as_serde_json(text in texts(), at: prop::sample::Index, put in "[\\[\\]{}\",:0e\\\\ -]?") {
            let at = at.index(text.chars().count());
            let changed: String =
                text.chars().enumerate().flat_map(|(n, char)| if n == at { put.clone() } else { char.to_string() }.chars().collect::<Vec<_>>()).collect();
            compare(&changed)?;
        }
    }
}
