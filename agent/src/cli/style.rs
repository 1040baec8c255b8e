//! How a text is drawn: colour, the characters of bars, and the width there is.
//!
//! Nothing here knows what is drawn. Colour is never the only sign of anything.

use std::{
    env,
    io::IsTerminal,
    sync::atomic::{AtomicU8, Ordering},
};

/// Columns taken where neither a terminal nor `COLUMNS` says how many there are.
const DEFAULT_COLUMNS: usize = 100;
/// Below this nothing lines up, above it the eye loses the line.
const COLUMNS: std::ops::RangeInclusive<usize> = 40..=120;

/// What a piece of text is, for its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// The answer, where it is yes.
    Fits,
    /// The answer, where it is no, and what lies beyond the card.
    DoesNotFit,
    /// A heading.
    Heading,
    /// What may be skipped.
    Quiet,
}

/// The characters of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glyphs {
    /// Memory that PyTorch does not count.
    pub outside: char,
    /// Live tensors.
    pub live: char,
    /// Reserved by PyTorch and not live.
    pub reserved: char,
    /// Where the card ends.
    pub card: char,
    /// A bar that goes on.
    pub more: char,
    /// Where one is cut.
    pub ellipsis: &'static str,
    /// Between two facts on a line.
    pub dot: char,
}

const BLOCKS: Glyphs =
    Glyphs { outside: '▒', live: '█', reserved: '░', card: '│', more: '»', ellipsis: "…", dot: '·' };
const ASCII: Glyphs =
    Glyphs { outside: '%', live: '#', reserved: '-', card: '|', more: '>', ellipsis: "...", dot: ',' };

/// When to colour, as `--color` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// On a terminal, unless the environment says otherwise.
    #[default]
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

/// [`When`], as a number, for this whole process.
static COLOUR: AtomicU8 = AtomicU8::new(When::Auto as u8);

/// Sets when to colour, for this whole process.
pub fn set_colour(when: When) {
    COLOUR.store(when as u8, Ordering::Relaxed);
}

fn wanted_colour() -> When {
    let kept = COLOUR.load(Ordering::Relaxed);
    [When::Always, When::Never].into_iter().find(|when| *when as u8 == kept).unwrap_or_default()
}

/// Whether to colour: `--color` decides, then NO_COLOR, then CLICOLOR_FORCE, then whether it is a terminal that can.
/// `variable` gives an environment variable that is not empty.
fn is_coloured(when: When, is_terminal: bool, variable: impl Fn(&str) -> Option<String>) -> bool {
    match when {
        When::Always => true,
        When::Never => false,
        When::Auto if variable("NO_COLOR").is_some() => false,
        When::Auto if variable("CLICOLOR_FORCE").is_some_and(|force| force != "0") => true,
        When::Auto => {
            is_terminal && variable("TERM").as_deref() != Some("dumb") && variable("CLICOLOR").as_deref() != Some("0")
        }
    }
}

/// How to draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether to colour.
    pub colour: bool,
    /// Whether characters beyond ASCII can be shown.
    pub unicode: bool,
    /// Columns of the terminal; `None` where there is none, and so no reason to break a sentence.
    pub columns: Option<usize>,
}

impl Style {
    /// What standard output and the environment allow.
    pub fn of_stdout() -> Self {
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let stdout = std::io::stdout();
        let measured = || terminal_size::terminal_size_of(&stdout).map(|(width, _)| usize::from(width.0));
        let columns = variable("COLUMNS").and_then(|columns| columns.parse().ok()).or_else(measured);
        let locale = variable("LC_ALL").or_else(|| variable("LC_CTYPE")).or_else(|| variable("LANG"));
        Self {
            colour: is_coloured(wanted_colour(), stdout.is_terminal(), variable),
            unicode: locale.map_or(cfg!(windows), |locale| is_utf8(&locale)),
            columns: columns.map(|columns: usize| columns.clamp(*COLUMNS.start(), *COLUMNS.end())),
        }
    }

    /// Columns a table may take.
    pub fn table_columns(&self) -> usize {
        self.columns.unwrap_or(DEFAULT_COLUMNS)
    }

    /// The characters to draw with.
    pub fn glyphs(&self) -> &'static Glyphs {
        if self.unicode { &BLOCKS } else { &ASCII }
    }

    /// The text in its ink.
    pub fn paint(&self, ink: Ink, text: &str) -> String {
        if !self.colour || text.is_empty() {
            return text.to_owned();
        }
        let code = match ink {
            Ink::Fits => "1;32",
            Ink::DoesNotFit => "1;31",
            Ink::Heading => "1",
            Ink::Quiet => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// The words in lines no wider than the terminal, each behind `indent` spaces; a longer word has a line of its own.
    pub fn wrapped(&self, text: &str, indent: usize) -> String {
        let indent = " ".repeat(indent);
        // Where nothing is broken, nothing is changed either: a message can be searched for.
        let Some(columns) = self.columns else { return format!("{indent}{text}\n") };
        let room = columns.saturating_sub(indent.len()).max(1);
        let mut lines: Vec<String> = vec![String::new()];
        let mut used = 0;
        for word in text.split_whitespace() {
            let length = word.chars().count();
            match lines.last_mut() {
                Some(line) if used == 0 => line.push_str(word),
                Some(line) if used + 1 + length <= room => {
                    line.push(' ');
                    line.push_str(word);
                    used += 1;
                }
                _ => {
                    lines.push(word.to_owned());
                    used = 0;
                }
            }
            used += length;
        }
        lines.iter().map(|line| format!("{indent}{line}\n")).collect()
    }

    /// The text, or its start with a mark, in at most `room` characters.
    pub fn shortened(&self, text: &str, room: usize) -> String {
        if text.chars().count() <= room {
            return text.to_owned();
        }
        let ellipsis = self.glyphs().ellipsis;
        let kept: String = text.chars().take(room.saturating_sub(ellipsis.chars().count())).collect();
        format!("{}{ellipsis}", kept.trim_end())
    }
}

fn is_utf8(locale: &str) -> bool {
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// A bar against a card: what lies beyond its end is drawn beyond its end.
#[derive(Clone, Copy, Debug)]
pub struct Bar {
    /// Cells, without the mark of the card's end.
    pub cells: usize,
    /// The card.
    pub card_bytes: u64,
    /// The largest end of any bar beside this one.
    pub largest_bytes: u64,
}

/// What a bar shows: the ends of its parts, each counted from its start.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// Memory that PyTorch does not count.
    pub outside_bytes: u64,
    /// The same and live tensors.
    pub live_bytes: u64,
    /// The same and what PyTorch holds besides.
    pub reserved_bytes: u64,
}

impl Bar {
    /// Draws one. A run that needs many times the card is cut at twice the card and says so.
    pub fn draw(&self, ends: Ends, style: &Style) -> String {
        let glyphs = style.glyphs();
        let scale_bytes = self.largest_bytes.clamp(self.card_bytes.max(1), self.card_bytes.saturating_mul(2).max(1));
        let cells = |bytes: u64| {
            let rounded = (u128::from(bytes) * self.cells as u128 * 2 / u128::from(scale_bytes)).div_ceil(2);
            usize::try_from(rounded).unwrap_or(usize::MAX).min(self.cells)
        };
        let [outside, live, reserved] = [ends.outside_bytes, ends.live_bytes, ends.reserved_bytes].map(cells);
        let glyph = |cell: usize| match cell {
            _ if cell < outside => glyphs.outside,
            _ if cell < live => glyphs.live,
            _ if cell < reserved => glyphs.reserved,
            _ => ' ',
        };
        let card = cells(self.card_bytes);
        let within: String = (0..card).map(glyph).collect();
        let mut beyond: String = (card..self.cells).map(glyph).collect();
        if ends.reserved_bytes > scale_bytes {
            beyond.pop();
            beyond.push(glyphs.more);
        }
        let beyond = style.paint(Ink::DoesNotFit, beyond.trim_end());
        format!("{within}{}{beyond}", glyphs.card)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Style = Style { colour: false, unicode: true, columns: Some(20) };

    #[track_caller]
    fn check_bar(card_bytes: u64, largest_bytes: u64, ends: [u64; 3], expected: &str) {
        let bar = Bar { cells: 10, card_bytes, largest_bytes };
        let [outside_bytes, live_bytes, reserved_bytes] = ends;
        assert_eq!(bar.draw(Ends { outside_bytes, live_bytes, reserved_bytes }, &PLAIN), expected);
    }

    #[test]
    fn a_bar_ends_where_the_card_does() {
        check_bar(100, 60, [10, 40, 60], "▒███░░    │");
        check_bar(100, 200, [10, 160, 200], "▒████│███░░");
        check_bar(100, 100, [0, 0, 0], "          │");
        check_bar(100, 100, [100, 100, 100], "▒▒▒▒▒▒▒▒▒▒│");
    }

    #[test]
    fn a_bar_far_beyond_the_card_is_cut_and_says_so() {
        check_bar(100, 9000, [10, 9000, 9000], "▒████│████»");
    }

    #[test]
    fn a_bar_of_absurd_sizes_is_drawn() {
        check_bar(0, 0, [0, 0, 0], "│");
        check_bar(u64::MAX, u64::MAX, [u64::MAX; 3], "▒▒▒▒▒▒▒▒▒▒│");
        check_bar(0, u64::MAX, [0, 1, u64::MAX], "│█████████»");
    }

    #[test]
    fn words_wrap_and_keep_their_order() {
        assert_eq!(PLAIN.wrapped("one two three four five", 2), "  one two three four\n  five\n");
        assert_eq!(
            PLAIN.wrapped("x a-word-that-is-longer-than-the-line y", 0),
            "x\na-word-that-is-longer-than-the-line\ny\n"
        );
        let endless = Style { columns: None, ..PLAIN };
        assert_eq!(endless.wrapped("one two.  Three", 1), " one two.  Three\n");
    }

    #[test]
    fn a_cut_text_says_so() {
        assert_eq!(PLAIN.shortened("abcdef", 6), "abcdef");
        assert_eq!(PLAIN.shortened("abcdefg", 6), "abcde…");
        assert_eq!(Style { unicode: false, ..PLAIN }.shortened("abcdefg", 6), "abc...");
    }

    #[test]
    fn colour_only_where_it_is_wanted() {
        assert_eq!(PLAIN.paint(Ink::DoesNotFit, "no"), "no");
        assert_eq!(Style { colour: true, ..PLAIN }.paint(Ink::DoesNotFit, "no"), "\x1b[1;31mno\x1b[0m");
    }

    #[test]
    fn the_option_decides_over_the_environment_and_that_over_the_terminal() {
        use When::{Always, Auto, Never};
        for (when, is_terminal, variables, coloured) in [
            (Auto, true, &[][..], true),
            (Auto, false, &[], false),
            (Auto, true, &[("NO_COLOR", "1")], false),
            (Auto, true, &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")], false),
            (Auto, false, &[("CLICOLOR_FORCE", "1")], true),
            (Auto, false, &[("CLICOLOR_FORCE", "0")], false),
            (Auto, true, &[("CLICOLOR", "0")], false),
            (Auto, true, &[("TERM", "dumb")], false),
            (Always, false, &[("NO_COLOR", "1"), ("TERM", "dumb")], true),
            (Never, true, &[("CLICOLOR_FORCE", "1")], false),
        ] {
            let variable =
                |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            assert_eq!(is_coloured(when, is_terminal, variable), coloured, "{when:?} {is_terminal} {variables:?}");
        }
    }

    #[test]
    fn locales_say_what_can_be_shown() {
        for (locale, utf8) in [("en_GB.UTF-8", true), ("C.utf8", true), ("C", false), ("de_DE.ISO-8859-1", false)] {
            assert_eq!(is_utf8(locale), utf8, "{locale}");
        }
    }
}
