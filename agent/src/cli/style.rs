//! Terminal styling: colour, bar glyphs and width.
//!
//! This module is independent of the content. Colour is never the only sign of anything.

use std::{
    env,
    io::IsTerminal,
    sync::atomic::{AtomicU8, Ordering},
};

/// Width in columns if neither a terminal nor `COLUMNS` gives one.
const DEFAULT_COLUMNS: usize = 100;
/// Range of usable widths. Narrower tables do not align, and wider lines are hard to follow.
const COLUMNS: std::ops::RangeInclusive<usize> = 40..=120;

/// Role of a piece of text, which selects its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// A positive answer.
    Fits,
    /// A negative answer, and memory beyond the GPU's capacity.
    DoesNotFit,
    Heading,
    /// Secondary text.
    Quiet,
}

/// Characters of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glyphs {
    /// Memory outside PyTorch's figures.
    pub outside: char,
    /// Live tensors.
    pub live: char,
    /// Reserved by PyTorch and not live.
    pub reserved: char,
    /// Mark of the GPU's capacity.
    pub gpu: char,
    /// Mark of a bar that continues beyond the edge.
    pub more: char,
    /// Mark of truncated text.
    pub ellipsis: &'static str,
    /// Separator between two facts on a line.
    pub dot: char,
}

const BLOCKS: Glyphs =
    Glyphs { outside: '▒', live: '█', reserved: '░', gpu: '│', more: '»', ellipsis: "…", dot: '·' };
const ASCII: Glyphs = Glyphs { outside: '%', live: '#', reserved: '-', gpu: '|', more: '>', ellipsis: "...", dot: ',' };

/// When to colour, from `--color`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColorChoice {
    /// On a terminal, unless the environment overrides it.
    #[default]
    Auto,
    Always,
    Never,
}

/// The process-wide [`ColorChoice`], as a number.
static COLOUR: AtomicU8 = AtomicU8::new(ColorChoice::Auto as u8);

/// Sets when to colour, process-wide.
pub fn set_colour(when: ColorChoice) {
    COLOUR.store(when as u8, Ordering::Relaxed);
}

fn wanted_colour() -> ColorChoice {
    let kept = COLOUR.load(Ordering::Relaxed);
    [ColorChoice::Always, ColorChoice::Never].into_iter().find(|when| *when as u8 == kept).unwrap_or_default()
}

/// Whether to colour: by `--color`, then NO_COLOR, then CLICOLOR_FORCE, then whether the output is a capable terminal.
/// `variable` returns an environment variable that is not empty.
fn is_coloured(when: ColorChoice, is_terminal: bool, variable: impl Fn(&str) -> Option<String>) -> bool {
    match when {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto if variable("NO_COLOR").is_some() => false,
        ColorChoice::Auto if variable("CLICOLOR_FORCE").is_some_and(|force| force != "0") => true,
        ColorChoice::Auto => {
            is_terminal && variable("TERM").as_deref() != Some("dumb") && variable("CLICOLOR").as_deref() != Some("0")
        }
    }
}

/// Output style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    pub colour: bool,
    /// Whether characters beyond ASCII can be displayed.
    pub unicode: bool,
    /// Width of the terminal in columns. `None` without a terminal, where sentences are not wrapped.
    pub columns: Option<usize>,
}

impl Style {
    /// Style that standard output and the environment allow.
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

    /// Whether to colour standard error.
    pub fn colours_stderr() -> bool {
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        is_coloured(wanted_colour(), std::io::stderr().is_terminal(), variable)
    }

    /// Columns available to a table.
    pub fn table_columns(&self) -> usize {
        self.columns.unwrap_or(DEFAULT_COLUMNS)
    }

    /// Glyphs of this style.
    pub fn glyphs(&self) -> &'static Glyphs {
        if self.unicode { &BLOCKS } else { &ASCII }
    }

    /// Colours the text by its role.
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

    /// Wraps the text to the terminal's width, with each line indented by `indent` spaces. A longer word has its own
    /// line.
    pub fn wrapped(&self, text: &str, indent: usize) -> String {
        let indent = " ".repeat(indent);
        // Without wrapping, the text stays unchanged and searchable.
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

    /// The text, truncated with a mark to at most `room` characters.
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

/// A bar scaled to a GPU's capacity. Memory beyond the capacity is drawn beyond the mark.
#[derive(Clone, Copy, Debug)]
pub struct Bar {
    /// Width in cells, without the capacity mark.
    pub cells: usize,
    /// Capacity of the GPU.
    pub gpu_bytes: u64,
    /// Largest end among all bars of the chart.
    pub largest_bytes: u64,
}

/// Parts of a bar, as cumulative ends in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// End of the memory outside PyTorch's figures.
    pub outside_bytes: u64,
    /// End of live tensors.
    pub live_bytes: u64,
    /// End of reserved memory.
    pub reserved_bytes: u64,
}

impl Bar {
    /// Draws the bar. A bar longer than twice the capacity is cut there and marked.
    pub fn draw(&self, ends: Ends, style: &Style) -> String {
        let glyphs = style.glyphs();
        let scale_bytes = self.largest_bytes.clamp(self.gpu_bytes.max(1), self.gpu_bytes.saturating_mul(2).max(1));
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
        let gpu = cells(self.gpu_bytes);
        let within: String = (0..gpu).map(glyph).collect();
        let mut beyond: String = (gpu..self.cells).map(glyph).collect();
        if ends.reserved_bytes > scale_bytes {
            beyond.pop();
            beyond.push(glyphs.more);
        }
        let beyond = style.paint(Ink::DoesNotFit, beyond.trim_end());
        format!("{within}{}{beyond}", glyphs.gpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Style = Style { colour: false, unicode: true, columns: Some(20) };

    #[track_caller]
    fn check_bar(gpu_bytes: u64, largest_bytes: u64, ends: [u64; 3], expected: &str) {
        let bar = Bar { cells: 10, gpu_bytes, largest_bytes };
        let [outside_bytes, live_bytes, reserved_bytes] = ends;
        assert_eq!(bar.draw(Ends { outside_bytes, live_bytes, reserved_bytes }, &PLAIN), expected);
    }

    #[test]
    fn a_bar_ends_where_the_gpu_does() {
        check_bar(100, 60, [10, 40, 60], "▒███░░    │");
        check_bar(100, 200, [10, 160, 200], "▒████│███░░");
        check_bar(100, 100, [0, 0, 0], "          │");
        check_bar(100, 100, [100, 100, 100], "▒▒▒▒▒▒▒▒▒▒│");
    }

    #[test]
    fn oversized_bar_is_cut_and_marked() {
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
    fn cut_text_is_marked() {
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
        use ColorChoice::{Always, Auto, Never};
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
