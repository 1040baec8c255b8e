//! A config with some values changed, and all else, comments and order included, as it was.

use std::ops::Range;

use super::lexer::{Kind, Lexer};
use super::names::Names;
use super::parser::{Reader, is_name};
use super::settings::Settings;
use super::value::Value;
use super::{MAX_SOURCE_BYTES, shortened};

/// Where a key got its final value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    /// The `=`, or the operator of an augmented assignment.
    pub op_start: usize,
    /// The first byte after it.
    pub op_end: usize,
    pub value_end: usize,
    /// Nothing else hangs on the same assignment, and it stands on one line.
    pub in_place: bool,
    /// A later expression reads the key, so that a change here would change that too.
    pub is_read_later: bool,
}

impl Site {
    /// Where the value begins, behind the operator and the blanks after it.
    fn value_start(&self, text: &str) -> usize {
        let between = text.get(self.op_end..self.value_end).unwrap_or_default();
        self.value_end - between.trim_start_matches([' ', '\t', '\u{c}']).len()
    }
}

/// Replacements in the order of the text: first byte, first byte after, what comes there.
struct Edits(Vec<(usize, usize, String)>);

impl Edits {
    /// Adds one, unless it is there.
    fn add(&mut self, start: usize, end: usize, replacement: &str) {
        let at = self.0.partition_point(|before| (before.0, before.1) <= (start, end));
        let is_same = |before: &(usize, usize, String)| (before.0, before.1) == (start, end) && before.2 == replacement;
        if !self.0.iter().any(is_same) {
            self.0.insert(at, (start, end, replacement.to_owned()));
        }
    }
}

/// `text` with each key set to its new value and the reason as a comment: `batch_size = 8  # headroom: why`; an empty
/// reason leaves none. The comment of an earlier change goes with the value that it explains, and so does the same comment on
/// other lines; what else stands on the line, comments and blanks included, stays.
///
/// A value is rewritten where it is assigned last. Where that would touch anything else (a chained assignment, a later
/// expression that reads the key, an assignment inside a block), and where the key is missing, the key is assigned at
/// the end, which in Python comes to the same. So reading the result gives the changes and otherwise what it gave
/// before, in any text whose brackets and strings are closed. A key that is no Python name is left out.
#[must_use]
pub fn patch(text: &str, changes: &[(&str, Value, &str)]) -> String {
    let mut scratch = Settings::default();
    let mut reader = Reader::new(if text.len() > MAX_SOURCE_BYTES { "" } else { text }, 0, &mut scratch);
    reader.tracks = true;
    reader.run();
    // What follows a bracket or string that is never closed is read by guesses, which an edit could turn.
    let sites = if reader.lexer.line_by_line { Names::default() } else { std::mem::take(&mut reader.sites) };

    let mut edits = Edits(Vec::new());
    let mut appended = String::new();
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let mut void: Vec<&str> = Vec::new();
    for (i, (key, value, why)) in changes.iter().enumerate() {
        let superseded = changes[i + 1..].iter().any(|(later, _, _)| later == key);
        if superseded || !is_name(key) {
            continue;
        }
        let comment = comment(why);
        let known = sites.get(key).and_then(|site| Some((site, line_end(text, site.value_end)?)));
        if let Some((_, line)) = &known {
            void.extend(own_comments(&text[line.comment..line.end]).map(|(_, why)| why));
        }
        match known.filter(|(site, _)| site.in_place && !site.is_read_later) {
            Some((site, line)) => {
                edits.add(site.op_start, site.op_end, "=");
                edits.add(site.value_start(text), site.value_end, &value.to_string());
                edits.add(line.end, line.end, &comment);
            }
            None => appended.push_str(&format!("{key} = {value}{comment}{newline}")),
        }
    }
    // A fix writes its reason on each line that it changes. Once one of them is changed again, the reason is void on all.
    if !void.is_empty() {
        for site in sites.iter().map(|(_, site)| site) {
            let Some(line) = line_end(text, site.value_end) else { continue };
            for (span, why) in own_comments(&text[line.comment..line.end]) {
                if void.contains(&why) {
                    edits.add(line.comment + span.start, line.comment + span.end, "");
                }
            }
        }
    }
    let edits = edits.0;

    let mut out = String::with_capacity(text.len() + appended.len() + 64 * edits.len());
    let mut done = 0;
    for (start, end, replacement) in edits {
        out.push_str(text.get(done..start).unwrap_or_default());
        out.push_str(&replacement);
        done = done.max(end);
    }
    out.push_str(&text[done..]);
    if !appended.is_empty() {
        if !out.is_empty() && !out.ends_with(['\n', '\r']) {
            out.push_str(newline);
        }
        // After a backslash the next line would belong to the last one.
        if out.trim_end_matches(['\n', '\r']).ends_with('\\') {
            // A lone CR would take the first LF for its own.
            out.push_str(if out.ends_with('\r') { "\n\n" } else { newline });
        }
        out.push_str(&appended);
    }
    out
}

/// The comment that a changed line ends with; none without a reason.
fn comment(why: &str) -> String {
    if why.trim().is_empty() {
        return String::new();
    }
    let why: String = why.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("  # headroom: {}", shortened(why.trim()))
}

/// What begins a comment of ours.
const MARK: &str = "# headroom:";

/// The comments of ours in a line's comment, each with the blanks before it, and with its reason. One ends where another
/// comment begins.
fn own_comments(comment: &str) -> impl Iterator<Item = (Range<usize>, &str)> {
    comment.match_indices(MARK).map(|(at, _)| {
        let start = comment[..at].trim_end().len();
        let behind = at + MARK.len();
        let end = comment[behind..].find(" #").map_or(comment.len(), |next| behind + next);
        (start..end, comment[behind..end].trim())
    })
}

/// `after` without the comments of Headroom that a person made wrong by typing; `None` if there are none.
///
/// Typing changes one line. Where that line has kept a comment of Headroom and changed otherwise, the comment goes, also
/// from the other lines that the same fix wrote.
#[must_use]
pub fn without_outdated_comments(before: &str, after: &str) -> Option<String> {
    if !after.contains(MARK) || before.lines().count() != after.lines().count() {
        return None;
    }
    let mut changed = before.lines().zip(after.lines()).filter(|(old, new)| old != new);
    let (Some((old, new)), None) = (changed.next(), changed.next()) else { return None };
    let (at, kept) = (new.find(MARK)?, old.find(MARK)?);
    if new[at..] != old[kept..] {
        return None;
    }
    let outdated: Vec<&str> = own_comments(new).map(|(_, why)| why).collect();
    let mut text = String::with_capacity(after.len());
    for line in after.split_inclusive('\n') {
        let mut from = 0;
        for (range, _) in own_comments(line).filter(|(_, why)| outdated.contains(why)) {
            // Of two comments without a blank between them, the first reaches over the second.
            text.push_str(line.get(from..range.start).unwrap_or_default());
            from = range.start + line[range.clone()].trim_end_matches(['\r', '\n']).len();
        }
        text.push_str(&line[from..]);
    }
    Some(text)
}

/// The end of a line.
struct LineEnd {
    /// Behind its last token: blanks and the comment.
    comment: usize,
    /// Its line break.
    end: usize,
}

/// Where the line ends that `from`, the end of a value, stands on; `None` if what follows on it goes on below, or if a
/// string is left open on it, which would take in a comment.
fn line_end(text: &str, from: usize) -> Option<LineEnd> {
    let mut lexer = Lexer::within_line(&text[from..]);
    let mut comment = from;
    loop {
        let token = lexer.next();
        if matches!(token.kind, Kind::Bad(_)) {
            return None;
        }
        if token.ends_line() {
            return (token.spot.line == 1).then_some(LineEnd { comment, end: from + token.spot.offset });
        }
        comment = from + token.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_removes_the_comment_of_a_changed_line() {
        let fixed = "a = 1\nbatch_size = 10  # mine  # headroom: fits L4\r\nbias = True  # headroom: fits L4\n";
        let typed = fixed.replace("= 10", "= 100");
        let cleared = "a = 1\nbatch_size = 100  # mine\r\nbias = True\n";
        assert_eq!(without_outdated_comments(fixed, &typed).as_deref(), Some(cleared));
        let joined = |value| format!("batch_size = {value}  # headroom: y# headroom: y# headroom: y\n");
        assert!(without_outdated_comments(&joined(1), &joined(2)).is_some(), "overlapping comments do not panic");
        for kept in [
            fixed.replace("a = 1", "a = 2"),
            fixed.replace("fits", "fit"),
            format!("{fixed}b = 2\n"),
            fixed.replace("  # headroom: fits L4", ""),
            fixed.to_owned(),
        ] {
            assert_eq!(without_outdated_comments(fixed, &kept), None, "{kept}");
        }
    }

    #[track_caller]
    fn check(text: &str, changes: &[(&str, Value, &str)], expected: &str) {
        assert_eq!(patch(text, changes), expected);
    }

    #[test]
    fn a_value_is_rewritten_where_it_stands() {
        check(
            "# mine\nbatch_size = 12 # micro\nn_layer=5 * 8\r\n",
            &[("batch_size", Value::Int(8), "fits"), ("n_layer", Value::Int(6), "a\nb")],
            "# mine\nbatch_size = 8 # micro  # headroom: fits\nn_layer=6  # headroom: a b\r\n",
        );
    }

    #[test]
    fn a_comment_of_ours_goes_with_its_value() {
        let fixed = "batch_size = 20  # headroom: fits RTX 4070\n";
        let edited = |why| vec![("batch_size", Value::Int(64), why)];
        check(fixed, &edited(""), "batch_size = 64\n");
        check(fixed, &edited("fits L4"), "batch_size = 64  # headroom: fits L4\n");
        check("batch_size=20 # mine  # headroom: y", &edited("z"), "batch_size=64 # mine  # headroom: z");
        check("batch_size = 20  # headroom: y # mine\r\n", &edited(""), "batch_size = 64 # mine\r\n");
        check("batch_size =\t20  # headroom: y  # headroom: y", &edited(""), "batch_size =\t64");
        // Another line's stays, unless the same change wrote it.
        check(
            "n_layer = 6  # headroom: x\nbatch_size = 20  # headroom: y\nbias = True  # headroom: y\n",
            &edited("z"),
            "n_layer = 6  # headroom: x\nbatch_size = 64  # headroom: z\nbias = True\n",
        );
        check("x = '# headroom: y'  # z", &[("x", Value::Int(1), "")], "x = 1  # z");
    }

    #[test]
    fn the_last_assignment_is_the_one_rewritten() {
        check(
            "batch_size = 12\nbatch_size = 6; bias = True",
            &[("batch_size", Value::Int(4), "fits")],
            "batch_size = 12\nbatch_size = 4; bias = True  # headroom: fits",
        );
        check(
            "batch_size = 12\nbatch_size *= 2\n",
            &[("batch_size", Value::Int(4), "fits")],
            "batch_size = 12\nbatch_size = 4  # headroom: fits\n",
        );
        check("x = 3 # mine", &[("x", Value::Int(4), "")], "x = 4 # mine");
        check("x: int = 3", &[("x", Value::Int(4), "y")], "x: int = 4  # headroom: y");
    }

    #[test]
    fn missing_keys_go_to_the_end() {
        check("", &[("dtype", Value::Str("float16".into()), "y")], "dtype = 'float16'  # headroom: y\n");
        check("bias = True\r\nx = 1", &[("n", Value::Int(1), "y")], "bias = True\r\nx = 1\r\nn = 1  # headroom: y\r\n");
        check("x = 1 \\\n", &[("n", Value::Int(1), "y")], "x = 1 \\\n\nn = 1  # headroom: y\n");
    }

    #[test]
    fn what_other_values_hang_on_is_set_anew() {
        let end = "n_head = 4  # headroom: y\n";
        for text in [
            "n_layer = n_head = 6\n",
            "n_head = 6\nn_layer = n_head\n",
            "n_head = (6 # six\n)\n",
            "n_head = 6\nif bias:\n    n_head = 8\n",
            "n_head, n_layer = 6, 6\n",
            "n_head = 6; n_layer = (\n 6)\n",
        ] {
            check(text, &[("n_head", Value::Int(4), "y")], &format!("{text}{end}"));
        }
    }

    #[test]
    fn a_string_left_open_on_the_line_takes_no_comment_in() {
        let text = "n_head = 6; x = 0, 'ooo\n";
        check(text, &[("n_head", Value::Int(4), "y")], &format!("{text}n_head = 4  # headroom: y\n"));
    }

    #[test]
    fn an_unevaluated_value_is_rewritten() {
        check("n_head = f()\n", &[("n_head", Value::Int(4), "y")], "n_head = 4  # headroom: y\n");
    }

    #[test]
    fn the_last_of_two_changes_counts_and_odd_names_do_not() {
        check(
            "a = 1",
            &[("a", Value::Int(2), "y"), ("a", Value::Int(3), "z"), ("if", Value::None, "")],
            "a = 3  # headroom: z",
        );
    }
}
