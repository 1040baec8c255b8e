//! Excerpts of texts that are too long for a field.

/// The longest text, in bytes, that a field shows whole. Browsers lay it out in a few milliseconds.
pub const WHOLE_BYTES_MAX: usize = 64 * 1024;
/// The most line breaks of a text that a field shows whole. The layout of a text area takes time quadratic in its lines.
const WHOLE_LINES_MAX: usize = 2048;
/// The bytes of the beginning and of the end that are shown of a longer text.
const PART_BYTES: usize = 2048;

/// A text as a field shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Excerpt {
    /// The shown text.
    pub text: String,
    /// The size of the whole text in bytes, if only parts of it are shown.
    pub n_bytes: Option<u64>,
    /// The number of lines of the whole text; 0 if it is shown whole.
    pub n_lines: u64,
}

/// Returns whether a field shows only parts of the text.
pub fn is_long(text: &str) -> bool {
    text.len() > WHOLE_BYTES_MAX || n_line_breaks(text) > WHOLE_LINES_MAX
}

fn n_line_breaks(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

/// Returns the text itself, or the beginning and the end of a long one.
pub fn of(text: &str) -> Excerpt {
    if !is_long(text) {
        return Excerpt { text: text.to_owned(), ..Excerpt::default() };
    }
    let head = &text[..text.floor_char_boundary(PART_BYTES)];
    let tail = &text[text.ceil_char_boundary(text.len() - PART_BYTES)..];
    Excerpt {
        text: format!("{head}\n\n[…]\n\n{tail}"),
        n_bytes: Some(text.len() as u64),
        n_lines: n_line_breaks(text) as u64 + 1,
    }
}

/// Maps a caret position in `before` to `after`, in UTF-16 code units. Both texts have the same lines, except that some
/// are cut off at the end.
pub fn moved_caret(before: &str, after: &str, caret: u32) -> u32 {
    let units = |line: &str| u32::try_from(line.encode_utf16().count()).unwrap_or(u32::MAX);
    let (mut old, mut new) = (0, 0);
    for (was, is) in before.split_inclusive('\n').zip(after.split_inclusive('\n')) {
        if caret < old + units(was) {
            return new + (caret - old).min(units(is.trim_end_matches('\n')));
        }
        old += units(was);
        new += units(is);
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caret_stays_at_its_character() {
        let (before, after) = ("a  # ü\nbatch_size = 100  # ü\nc", "a\nbatch_size = 100\nc");
        for (was, is) in [(0, 0), (1, 1), (6, 1), (7, 2), (23, 18), (28, 18), (29, 19), (30, 20), (99, 20)] {
            assert_eq!(moved_caret(before, after, was), is, "{was}");
        }
    }

    #[test]
    fn a_text_that_a_field_can_show_is_shown_whole() {
        let text = "x".repeat(WHOLE_BYTES_MAX);
        assert_eq!(of(&text), Excerpt { text, ..Excerpt::default() });
    }

    #[test]
    fn a_long_text_is_bounded_and_keeps_both_ends() {
        let text = format!("first\n{}last", "ü = 1\n".repeat(1_000_000));
        let shown = of(&text);
        assert!(shown.text.len() < 3 * PART_BYTES, "{}", shown.text.len());
        assert!(shown.text.starts_with("first\n") && shown.text.ends_with("last"));
        assert_eq!((shown.n_bytes, shown.n_lines), (Some(text.len() as u64), 1_000_002));
    }

    #[test]
    fn a_text_of_many_short_lines_is_shown_in_part() {
        assert!(!is_long(&"x\n".repeat(WHOLE_LINES_MAX)));
        let text = "x\n".repeat(32_000);
        let shown = of(&text);
        assert!(shown.text.len() < 3 * PART_BYTES, "{}", shown.text.len());
        assert_eq!((shown.n_bytes, shown.n_lines), (Some(64_000), 32_001));
    }
}
