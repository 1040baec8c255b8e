//! Messages as sentences of a list. The command line prints them after a colon, so they begin in lower case.

use crate::text::{Text, say, table};

/// The message with a capital letter, unless it begins with a name: an argument of the text, or an identifier in its
/// words.
pub fn sentence(message: &Text) -> String {
    let said = say(message);
    if table().begins_with_argument(message) { said } else { capitalized(&said) }
}

/// German letters outside ASCII that begin words. Unicode's tables would add kilobytes to a page.
const UMLAUTS: [(char, char); 3] = [('ä', 'Ä'), ('ö', 'Ö'), ('ü', 'Ü')];

fn capitalized(message: &str) -> String {
    let word = message.split(' ').next().unwrap_or_default().trim_end_matches([',', ':', ';']);
    // `nanoGPT` and `torch.compile` are not words; a word may contain an apostrophe.
    let is_word =
        word.chars().all(|c| c.is_ascii_lowercase() || UMLAUTS.iter().any(|(small, _)| *small == c) || c == '\'');
    let is_name = !is_word || CODE.contains(&word);
    let mut chars = message.chars();
    match chars.next() {
        Some(first) if !is_name => {
            let umlaut = UMLAUTS.iter().find(|(small, _)| *small == first).map(|(_, capital)| *capital);
            umlaut.unwrap_or(first.to_ascii_uppercase()).to_string() + chars.as_str()
        }
        _ => message.to_owned(),
    }
}

/// Identifiers that look like words and begin a text.
const CODE: [&str; 4] = ["device", "dropout", "dtype", "resume"];

/// The key that a message is about, as its prefix; empty if the message contains the key.
pub fn named_key(key: &str, message: &str) -> String {
    let is_named = message.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == key);
    if is_named { String::new() } else { key.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    #[test]
    fn messages_begin_with_a_capital_and_names_stay() {
        for (message, expected) in [
            ("this config was not read", "This config was not read"),
            ("did you mean batch_size?", "Did you mean batch_size?"),
            ("batch_size cannot be read: why", "batch_size cannot be read: why"),
            ("dtype is \"x\"; nanoGPT knows float32", "dtype is \"x\"; nanoGPT knows float32"),
            ("nanoGPT stops: there is no `=`", "nanoGPT stops: there is no `=`"),
            ("torch.compile stops on X", "torch.compile stops on X"),
            ("--n_layer=6", "--n_layer=6"),
            ("`a` is not evaluated", "`a` is not evaluated"),
            ("nanoGPT's own config is used", "nanoGPT's own config is used"),
            ("没有读取", "没有读取"),
            ("öffnen Sie die Datei", "Öffnen Sie die Datei"),
            ("", ""),
        ] {
            assert_eq!(capitalized(message), expected);
        }
    }

    #[test]
    fn names_keep_their_case() {
        for (message, expected) in [
            (text::not_a_setting("foo"), "foo is not a setting of nanoGPT, which ignores it"),
            (
                text::unreadable("compile", text::NOT_A_NAME),
                "compile cannot be read: is not a setting or an earlier name",
            ),
            (
                text::line_left_out(text::of_name("x", text::NOT_EXPECTED)),
                "`x` is not expected here; the line is ignored",
            ),
            (text::line_left_out(text::STRING_UNCLOSED), "This string is not closed on its line; the line is ignored"),
            (
                text::may_set(text::ONLY_SINGLE_NAMES, "a"),
                "Only assignments to a single name are evaluated; it may set a",
            ),
            (text::did_you_mean("dropout"), "Did you mean dropout?"),
            (text::verbatim("config.py"), "config.py"),
            (text::WRITE_VALUE.into(), "Write the value as a literal"),
        ] {
            assert_eq!(sentence(&message), expected);
        }
    }

    #[test]
    fn a_key_is_named_once() {
        assert_eq!(named_key("n_head", "n_embd (768) must be divisible by n_head (7)"), "");
        assert_eq!(named_key("gpu", "choose a GPU or enter its memory"), "gpu");
    }
}
