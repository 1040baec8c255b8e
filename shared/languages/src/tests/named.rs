//! Texts by name, with their wording.

use headroom_text::{self as text, Arg, NamedText, Separator, Text, count, list, names, size};

use crate::table;

#[track_caller]
fn travels(text: &Text, json: &str) {
    let named = NamedText::of(text).expect("it has a name");
    assert_eq!(serde_json::to_string(&named).expect("JSON"), json);
    let read: NamedText = serde_json::from_str(json).expect("JSON");
    assert_eq!((read.text().as_ref(), &read), (Some(text), &named));
}

#[test]
fn text_travels_by_its_name_with_its_arguments() {
    travels(&text::CARD_NONE.into(), r#"{"key":"card_none"}"#);
    travels(
        &text::holder_with(text::holder_named("a b", 7_u64), size(3 << 29)),
        r#"{"key":"holder_with","args":[{"key":"holder_named","args":[{"text":"a b"},{"number":7}]},{"bytes":1610612736}]}"#,
    );
    travels(
        &text::tries(list(Separator::Semicolon, [text::TRY_CPU.into(), text::try_batch_size(4_u64)])),
        r#"{"key":"tries","args":[{"list":[{"key":"try_cpu"},{"key":"try_batch_size","args":[{"number":4}]}],"separator":"; "}]}"#,
    );
    travels(
        &text::not_allowed_config(count(1_234_567), names(["x", "y"])),
        r#"{"key":"not_allowed_config","args":[{"count":1234567},{"list":[{"text":"x"},{"text":"y"}],"separator":", "}]}"#,
    );
}

#[test]
fn unnamed_argument_is_taken_in_english() {
    let note = text::note_of("a.py", text::fits(size(3 << 29)));
    let named = NamedText::of(&note).expect("it has a name");
    assert_eq!(named.args[1], Arg::Text { text: "Fits: 1.50 GiB left".to_owned() });
    assert_eq!(NamedText::of(&text::fits(size(1))), None);
}

#[test]
fn plain_words_have_no_name() {
    assert_eq!(NamedText::of(&text::as_is("a disk is full")), None);
    let why = text::history_unusable(text::as_is("a disk is full"));
    let named = NamedText::of(&why).expect("it has a name");
    assert_eq!(named.args, [Arg::Text { text: "a disk is full".to_owned() }]);
    let lines = text::as_is(list(Separator::Line, [text::CARD_NONE, text::TRY_CPU]));
    let named = NamedText::of(&lines).expect("it is a list of texts");
    assert!(table("de").say(&named.text().expect("it is known")).contains("\n--device=cpu"));
}

#[test]
fn text_of_later_version_is_unknown() {
    for json in [
        r#"{"key":"no such text"}"#,
        r#"{"key":"card_none","args":[{"text":"one more"}]}"#,
        r#"{"key":"tries","args":[{"colour":"red"}]}"#,
        r#"{"key":"tries","args":[{"list":[],"separator":" or "}]}"#,
        r#"{"key":"tries","args":[{"key":"no such text"}]}"#,
    ] {
        let read: NamedText = serde_json::from_str(json).expect(json);
        assert_eq!(read.text(), None, "{json}");
    }
}
