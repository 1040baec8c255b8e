//! A strict parser of Prometheus' text format: Prometheus accepts any text that it accepts.

use std::collections::{BTreeMap, BTreeSet};

/// A parsed family.
#[derive(Debug)]
pub struct ParsedFamily {
    pub name: String,
    pub samples: Vec<Sample>,
}

/// A parsed sample.
#[derive(Debug)]
pub struct Sample {
    pub labels: BTreeMap<String, String>,
    /// The number as written.
    pub value: String,
}

/// Parses a whole text.
///
/// # Errors
/// The first error in the text.
pub fn parse(text: &str) -> Result<Vec<ParsedFamily>, String> {
    let body = text.strip_suffix('\n').ok_or("the last line does not end")?;
    let mut lines = body.split('\n').peekable();
    let (mut families, mut names) = (Vec::new(), BTreeSet::new());
    while let Some(line) = lines.next() {
        let wrong = |what: &str| format!("{what}: {line}");
        let (name, help) =
            line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')).ok_or_else(|| wrong("no HELP"))?;
        if !is_name(name) || !names.insert(name) {
            return Err(wrong("no name, or one that was there"));
        }
        if help.is_empty() || help.replace("\\\\", "").replace("\\n", "").contains('\\') {
            return Err(wrong("no help, or a wrong escape"));
        }
        let kind = lines.next().and_then(|line| line.strip_prefix("# TYPE ")?.strip_prefix(name)?.strip_prefix(' '));
        match (kind, name.ends_with("_total")) {
            (Some("counter"), true) | (Some("gauge"), false) => {}
            _ => return Err(wrong("no TYPE, or not that of its name")),
        }
        let (mut samples, mut series) = (Vec::new(), BTreeSet::new());
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let sample = sample(line, name).map_err(|what| format!("{what}: {line}"))?;
            if !series.insert(sample.labels.clone()) {
                return Err(format!("the series was there: {line}"));
            }
            samples.push(sample);
        }
        if samples.is_empty() {
            return Err(wrong("a family without samples"));
        }
        families.push(ParsedFamily { name: name.to_owned(), samples });
    }
    Ok(families)
}

fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|first| first.is_ascii_lowercase())
        && chars.all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '_')
        && !name.starts_with("__")
}

fn sample(line: &str, name: &str) -> Result<Sample, &'static str> {
    let mut rest = line.strip_prefix(name).ok_or("another family's sample")?;
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").ok_or("no label")?;
            let (value, after) = quoted(after)?;
            if !is_name(label) || labels.insert(label.to_owned(), value).is_some() {
                return Err("a wrong label, or one that was there");
            }
            match after.strip_prefix(',') {
                Some(after) => rest = after,
                None => break rest = after.strip_prefix('}').ok_or("labels do not end")?,
            }
        }
    }
    let value = rest.strip_prefix(' ').ok_or("no value")?;
    let is_plain = value.bytes().all(|byte| byte.is_ascii_digit() || b".e+-".contains(&byte));
    let number: f64 = value.parse().map_err(|_| "no number")?;
    if is_plain && number.is_finite() { Ok(Sample { labels, value: value.to_owned() }) } else { Err("no plain number") }
}

/// Splits a text after the closing quote of a label's value.
fn quoted(text: &str) -> Result<(String, &str), &'static str> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match (char, char.is_control()) {
            ('"', _) => return Ok((value, &text[at + 1..])),
            ('\\', _) => value.push(match chars.next() {
                Some((_, 'n')) => '\n',
                Some((_, char @ ('\\' | '"'))) => char,
                _ => return Err("a wrong escape"),
            }),
            (_, true) => return Err("a control character"),
            (char, false) => value.push(char),
        }
    }
    Err("a value does not end")
}

#[test]
fn must_find_what_is_wrong() {
    let good = "# HELP a_b Help.\n# TYPE a_b gauge\na_b{x=\"\\\\ \\\" \\n\",y=\"\"} 1.5\na_b{x=\"2\",y=\"\"} 0\n";
    assert_eq!(parse(good).expect("a good text")[0].samples[0].labels["x"], "\\ \" \n");
    for (from, to) in [
        ("} 0\n", "} 0"),
        ("} 0\n", "} NaN\n"),
        ("} 0\n", "} +Inf\n"),
        ("} 0\n", "}\n"),
        ("} 0\n", "} 0\n\n"),
        ("} 0\n", "} 0\n# HELP a_b Again.\n# TYPE a_b gauge\na_b 1\n"),
        ("} 0\n", "} 0\n# HELP c Empty.\n# TYPE c gauge\n"),
        ("x=\"2\"", "x=\"\\\\ \\\" \\n\""),
        ("x=\"2\"", "x=\"\\t\""),
        ("x=\"2\"", "x=\"\u{0}\""),
        ("x=\"2\"", "x=\"2"),
        ("x=\"2\"", "x=\"2\",x=\"3\""),
        ("a_b{x=\"2\"", "c{x=\"2\""),
        ("# HELP a_b Help.\n", ""),
        ("gauge", "counter"),
        ("gauge", "summary"),
        ("TYPE a_b", "TYPE a"),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good);
        parse(&bad).expect_err(&bad);
    }
}
