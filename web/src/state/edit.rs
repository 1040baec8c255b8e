//! Edits of the form, written into the text. A config keeps its comments and a command keeps its form. A log becomes a
//! config. A text that cannot be rewritten without a loss stays as it is.

use headroom_planner::nanogpt::{PastedKind, Settings, VOCABULARY_COMMENT, Value, command_range, defaults, patch};

use super::{parse, read_settings};

/// The key of the vocabulary size, which nanoGPT reads from the data set.
const VOCABULARY: &str = "vocab_size";

/// Returns the text with the given keys set.
pub fn set(text: &str, changes: &[(&str, Value)]) -> String {
    set_because(text, changes, "")
}

/// Does the same as [`set`], and adds a comment with the reason to the changed lines of a config. Commands get no
/// comment.
pub fn set_because(text: &str, changes: &[(&str, Value)], why: &str) -> String {
    let edited = match parse(text).kind {
        PastedKind::Config => Some(set_in_config(text, changes, why)),
        PastedKind::Command => changes.iter().try_fold(text.to_owned(), |text, change| set_in_command(&text, change)),
        PastedKind::Log | PastedKind::Words | PastedKind::Json | PastedKind::Unsupported => None,
    };
    edited.filter(|edited| holds(edited, changes)).unwrap_or_else(|| match is_convertible(text) {
        true => set_in_config(&as_config(text), changes, why),
        false => text.to_owned(),
    })
}

/// Whether a config of the settings that were read replaces the text. It would lose a text that is not read, and have an
/// error of the text as a statement.
fn is_convertible(text: &str) -> bool {
    let settings = read_settings(text);
    !settings.found_nothing() && settings.problems.first_stop().is_none()
}

/// The config of a command or a log. `None` if the text is a config already, or not all of it was read.
pub fn to_config(text: &str) -> Option<String> {
    let is_other = matches!(parse(text).kind, PastedKind::Command | PastedKind::Log | PastedKind::Words);
    let is_whole = is_other && is_convertible(text) && read_settings(text).unread.is_empty();
    is_whole.then(|| as_config(text))
}

/// Converts a command or a log to a config.
pub fn as_config(text: &str) -> String {
    read_settings(text).to_config()
}

/// The text without any line or argument that sets the key. Other ways to set the key remain.
pub fn unset(text: &str, key: &str) -> String {
    let sets = |line: &str| {
        let rest = line.strip_prefix(key).map(str::trim_start);
        rest.is_some_and(|rest| rest.starts_with('=') && !rest.starts_with("=="))
    };
    let flag = format!("--{key}=");
    let is_comment = |line: &str| key == VOCABULARY && line.starts_with(VOCABULARY_COMMENT);
    let lines = text.split_inclusive('\n').filter(|line| !sets(line) && !is_comment(line));
    let mut without: String = lines.collect();
    while let Some((start, end)) = words(&without).into_iter().find(|(start, _)| without[*start..].starts_with(&flag)) {
        let start = without[..start].trim_end_matches(' ').len();
        without.replace_range(start..end, "");
    }
    without
}

fn holds(text: &str, changes: &[(&str, Value)]) -> bool {
    let settings = read_settings(text);
    changes.iter().all(|(key, value)| settings.value(key).as_ref() == Some(value))
}

fn set_in_config(text: &str, changes: &[(&str, Value)], why: &str) -> String {
    let changes: Vec<_> = changes.iter().map(|(key, value)| (*key, value.clone(), why)).collect();
    patch(text, &changes)
}

/// Rewrites the last `--key=value`. If there is none, or a config after it overrides it, adds one after the last
/// argument of `train.py`. The vocabulary, which is no argument of nanoGPT, is a comment above the command.
fn set_in_command(text: &str, (key, value): &(&str, Value)) -> Option<String> {
    if *key == VOCABULARY {
        return Some(format!("{VOCABULARY_COMMENT}{value}\n{}", unset(text, VOCABULARY)));
    }
    let argument = format!("--{key}={}", shell_value(value)?);
    let flag = format!("--{key}=");
    let commands = command_range(text);
    let words: Vec<_> = words(&text[commands.clone()])
        .into_iter()
        .map(|(start, end)| (commands.start + start, commands.start + end))
        .collect();
    let last = words.iter().rev().find(|(start, _)| text[*start..].starts_with(&flag));
    if let Some(&(start, end)) = last {
        let rewritten = format!("{}{argument}{}", &text[..start], &text[end..]);
        if holds(&rewritten, &[(key, value.clone())]) {
            return Some(rewritten);
        }
    }
    let is_script = |(start, end): &(usize, usize)| text[*start..*end].ends_with(".py");
    let is_train_py = |(start, end): &(usize, usize)| text[*start..*end].ends_with("train.py");
    let is_argument = |word: &(usize, usize)| text[word.0..].starts_with("--") || is_script(word);
    let first = words.iter().position(is_train_py).or_else(|| words.iter().position(is_argument))?;
    let end = words[first..].iter().take_while(|word| is_argument(word)).last()?.1;
    Some(format!("{} {argument}{}", &text[..end], &text[end..]))
}

/// The byte ranges of words between spaces. Quoted text is one word.
fn words(text: &str) -> Vec<(usize, usize)> {
    let mut words = Vec::new();
    let mut start = None;
    let mut quote = None;
    for (at, char) in text.char_indices() {
        match (quote, char) {
            (Some(open), _) if open == char => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => {
                quote = Some(char);
                start.get_or_insert(at);
            }
            (None, _) if char.is_whitespace() => words.extend(start.take().map(|start| (start, at))),
            (None, _) => {
                start.get_or_insert(at);
            }
        }
    }
    words.extend(start.map(|start| (start, text.len())));
    words
}

/// A key and its value as an argument that nanoGPT's configurator accepts beside the configs that set `base`. `None` if
/// no argument has the value.
pub fn argument(key: &str, value: &Value, base: &Settings) -> Option<String> {
    Some(format!("--{key}={}", shell_value(&accepted(key, value, base)?)?))
}

/// The equivalent value of the type that the configurator accepts: the type of the value that the argument replaces.
pub fn accepted(key: &str, value: &Value, base: &Settings) -> Option<Value> {
    let replaced = base.value(key).map(|replaced| replaced.type_name());
    let expected = replaced.or_else(|| Some(defaults::find(key)?.default.type_name()))?;
    match (value, expected) {
        (value, expected) if value.type_name() == expected => Some(value.clone()),
        // train.py only uses `if key:`.
        (value, "bool") => value.truthy().map(Value::Bool),
        (Value::Int(int), "float") => Some(Value::Float(*int as f64)),
        #[expect(clippy::cast_possible_truncation, reason = "whole, and exact as an integer")]
        (Value::Float(float), "int") if float.fract() == 0.0 && float.abs() < 9e15 => Some(Value::Int(*float as i64)),
        _ => None,
    }
}

/// A value as nanoGPT's configurator reads it from a shell. `None` if it would need nested quotes, or if the
/// configurator cannot read it.
fn shell_value(value: &Value) -> Option<String> {
    let text = value.to_python_str()?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./+".contains(c);
    match value {
        // The configurator evaluates text that looks like a literal, so such a string is quoted twice.
        Value::Str(_)
            if !text.starts_with(|c: char| c.is_ascii_alphabetic())
                || !text.chars().all(is_plain)
                || matches!(&*text, "True" | "False" | "None") =>
        {
            let is_quotable = |c: char| !c.is_control() && !"\"'\\$`!=".contains(c);
            text.chars().all(is_quotable).then(|| format!("\"'{text}'\""))
        }
        // No literal has the value.
        Value::Float(float) if !float.is_finite() => None,
        _ => Some(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, changes: &[(&str, Value)], expected: &str) {
        assert_eq!(set(text, changes), expected);
    }

    #[test]
    fn a_config_keeps_its_comments_and_gets_none() {
        check(
            "batch_size = 12  # as published\nbias = True\n",
            &[("batch_size", Value::Int(8)), ("n_layer", Value::Int(6))],
            "batch_size = 8  # as published\nbias = True\nn_layer = 6\n",
        );
        check("", &[("compile", Value::Bool(false))], "compile = False\n");
        check("x = 1", &[("x", Value::Int(2))], "x = 2");
    }

    #[test]
    fn a_hundred_moves_of_a_slider_leave_one_line() {
        let text = (0..100).fold(String::new(), |text, i| set(&text, &[("batch_size", Value::Int(i))]));
        assert_eq!(text, "batch_size = 99\n");
    }

    #[test]
    fn a_command_stays_a_command() {
        check(
            "python train.py config/a.py --batch_size=32 --compile=False",
            &[("batch_size", Value::Int(4)), ("dtype", Value::Str("float16".into()))],
            "python train.py config/a.py --batch_size=4 --compile=False --dtype=float16",
        );
        check(
            "python train.py --out_dir='a b' | tee log",
            &[("n_layer", Value::Int(4))],
            "python train.py --out_dir='a b' --n_layer=4 | tee log",
        );
        let eight = [("batch_size", Value::Int(8))];
        check("--n_layer=6", &eight, "--n_layer=6 --batch_size=8");
        check("!uv run nanoGPT/train.py  # first", &eight, "!uv run nanoGPT/train.py --batch_size=8  # first");
        // The config sets the key after the argument.
        for command in ["", "python train.py "] {
            let config = format!("{command}--batch_size=64 config/train_gpt2.py");
            check(&config, &eight, &format!("{config} --batch_size=8"));
        }
        let below = "\n\n# train.py\nbatch_size = 4\n";
        check(&format!("python train.py a.py{below}"), &eight, &format!("python train.py a.py --batch_size=8{below}"));
    }

    #[test]
    fn a_log_becomes_a_config() {
        check(
            "Overriding: batch_size = 64\nOverriding: n_layer = 6\ntokens per iteration will be: 1\n",
            &[("batch_size", Value::Int(8))],
            "batch_size = 8\nn_layer = 6\n",
        );
    }

    #[test]
    fn nothing_of_a_log_is_lost() {
        check(
            "Overriding: out_dir = out-mine\nOverriding: batch_size = 64\nOverriding: wandb_run_name = first\n",
            &[("batch_size", Value::Int(8))],
            "out_dir = 'out-mine'\nwandb_run_name = 'first'\nbatch_size = 8\n",
        );
    }

    #[test]
    fn a_text_that_cannot_be_read_is_not_replaced() {
        let seven = [("batch_size", Value::Int(7))];
        let arguments: String = (0..300).map(|n| format!(" --n_layer={}", n + 1)).collect();
        let other_model = "Overriding: batch_size = 8\nnumber of parameters: 1555.97M\n";
        for text in [
            "batch_size: 64\nblock_size: 1024\n",
            "python main.py --batch_size=64",
            "{\"architectures\": [\"LlamaForCausalLM\"]}",
            &format!("python train.py{arguments}"),
            other_model,
        ] {
            check(text, &seven, text);
        }
        check("hello\n", &seven, "hello\nbatch_size = 7\n");
        // An argument with an error is one that an edit can correct.
        check("python train.py --batch_size=8.0", &seven, "python train.py --batch_size=7");
        check("python train.py --foo=1", &seven, "python train.py --foo=1 --batch_size=7");
    }

    #[test]
    fn a_string_that_looks_like_a_number_is_quoted_for_the_shell() {
        assert_eq!(shell_value(&Value::Str("7".into())).as_deref(), Some("\"'7'\""));
        assert_eq!(shell_value(&Value::Str("out/a".into())).as_deref(), Some("out/a"));
        assert_eq!(shell_value(&Value::Float(6e-4)).as_deref(), Some("0.0006"));
    }
}
