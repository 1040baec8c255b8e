//! Tests of the parser with a table of three options.

use super::*;

#[derive(Debug, Default, PartialEq)]
struct ParsedOptions {
    gpu: String,
    json: bool,
    words: Vec<String>,
}

const FLAGS: [Flag<ParsedOptions>; 2] = [
    Flag {
        name: "card",
        value: Some("NAME"),
        doc: "The GPU [default: none]",
        set: |seen, value| {
            value.clone_into(&mut seen.gpu);
            if value.is_empty() { Err("it is empty".to_owned().into()) } else { Ok(()) }
        },
    },
    Flag {
        name: "json",
        value: None,
        doc: "Print JSON",
        set: |seen, _| {
            seen.json = true;
            Ok(())
        },
    },
];

fn parsed(args: &[&str]) -> Result<(ParsedArgs, ParsedOptions), UsageError> {
    let mut seen = ParsedOptions::default();
    let parsed = parse("plan", &FLAGS, args.iter().map(Into::into), &mut seen, |seen, word| {
        seen.words.push(format!("{word:?}"));
        Ok(())
    })?;
    Ok((parsed, seen))
}

#[track_caller]
fn check(args: &[&str], gpu: &str, json: bool, words: &[&str]) {
    let (taken, seen) = parsed(args).expect("they are taken");
    assert_eq!(taken, ParsedArgs::Taken);
    assert_eq!((seen.gpu.as_str(), seen.json), (gpu, json));
    assert_eq!(seen.words, words);
}

#[test]
fn an_option_takes_its_value_either_way() {
    check(&["--card", "RTX 4070", "--json"], "RTX 4070", true, &[]);
    check(&["--card=RTX 4070"], "RTX 4070", false, &[]);
    check(&["--card=a=b"], "a=b", false, &[]);
}

#[test]
fn everything_else_comes_in_its_order() {
    check(
        &["a.py", "--batch_size=64", "--card", "L4", "b.py", "--compile", "c=d", "--x=", "--", "--card"],
        "L4",
        false,
        &[
            "Plain(\"a.py\")",
            "Other(\"--batch_size=64\")",
            "Plain(\"b.py\")",
            "Other(\"--compile\")",
            "Plain(\"c=d\")",
            "Other(\"--x=\")",
            "Plain(\"--card\")",
        ],
    );
}

#[test]
fn help_ends_the_reading() {
    for help in ["-h", "--help"] {
        assert_eq!(parsed(&["--json", help, "-x"]).expect("help").0, ParsedArgs::Help);
    }
}

#[test]
fn what_cannot_be_used_is_said() {
    for (args, said) in [
        (&["--card"][..], "--card needs a value"),
        (&["--card", "--json"], "--card needs a value"),
        (&["--card="], "--card: it is empty"),
        (&["--json=1"], "--json is a switch and takes no value"),
        (&["-x"], "plan has no option -x"),
    ] {
        assert_eq!(parsed(args).expect_err("it is refused").to_string(), said, "{args:?}");
    }
}

#[test]
fn a_misspelt_option_finds_its_own() {
    for (option, near) in
        [("--cards=4", Some("--card")), ("--jsn", Some("--json")), ("--car", Some("--card")), ("--weight", None)]
    {
        assert_eq!(nearest(&FLAGS, option).as_deref(), near, "{option}");
    }
}

#[test]
fn the_help_lines_up() {
    assert_eq!(
        options_help(&shown(&FLAGS)),
        "      --card NAME  The GPU [default: none]\n      --json       Print JSON\n"
    );
}
