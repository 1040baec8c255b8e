//! Changes values in a config and keeps everything else, including comments and order.

use std::ops::Range;

use super::lexer::{Kind, Lexer, is_name};
use super::names::Names;
use super::parser::Reader;
use super::settings::Settings;
use super::value::Value;
use super::{MAX_SOURCE_BYTES, shortened};

/// Replacements sorted by position: first byte, first byte after, replacement.
struct Edits(Vec<(usize, usize, String)>);

impl Edits {
    /// Adds a replacement unless it is already present.
    fn add(&mut self, start: usize, end: usize, replacement: &str) {
        let at = self.0.partition_point(|before| (before.0, before.1) <= (start, end));
        let is_same = |before: &(usize, usize, String)| (before.0, before.1) == (start, end) && before.2 == replacement;
        if !self.0.iter().any(is_same) {
            self.0.insert(at, (start, end, replacement.to_owned()));
        }
    }
}

/// Sets each key in `text` to its new value, with the reason as a comment: `batch_size = 8  # headroom: why`.
///
/// An empty reason adds no comment. The comment of an earlier change is removed with its value, and so is the same
/// comment on other lines. The rest of the line, including other comments and blanks, is kept.
///
/// A value is rewritten at its last assignment. If that would affect anything else, the key is assigned at the end
/// instead, which is equivalent in Python. Such cases are a chained assignment, a later expression that reads the key,
/// and an assignment inside a block. A missing key is assigned at the end, too. So the result has the changes and
/// otherwise the previous values, for any text whose brackets and strings are closed. A key that is not a Python name
/// is skipped.
#[must_use]
pub fn patch(text: &str, changes: &[(&str, Value, &str)]) -> String {
    let mut scratch = Settings::default();
    let mut reader = Reader::new(if text.len() > MAX_SOURCE_BYTES { "" } else { text }, 0, &mut scratch);
    reader.tracks = true;
    reader.run();
    // After an unclosed bracket or string, the parser guesses, and an edit could change its guess.
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
    // A fix writes the same reason on each line that it changes. When one of them changes again, the reason is removed
    // from all.
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
        // After a backslash, the next line would continue the last one.
        if out.trim_end_matches(['\n', '\r']).ends_with('\\') {
            // A single CR would merge with the first LF.
            out.push_str(if out.ends_with('\r') { "\n\n" } else { newline });
        }
        out.push_str(&appended);
    }
    out
}

/// Returns the comment for the end of a changed line; empty without a reason.
fn comment(why: &str) -> String {
    if why.trim().is_empty() {
        return String::new();
    }
    let why: String = why.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("  # headroom: {}", shortened(why.trim()))
}

/// Start of a comment written by Headroom.
const MARK: &str = "# headroom:";

/// Iterates over Headroom's comments within a line's comment, each with the preceding blanks and its reason. A comment
/// ends where the next one begins.
fn own_comments(comment: &str) -> impl Iterator<Item = (Range<usize>, &str)> {
    comment.match_indices(MARK).map(|(at, _)| {
        let start = comment[..at].trim_end().len();
        let behind = at + MARK.len();
        let end = comment[behind..].find(" #").map_or(comment.len(), |next| behind + next);
        (start..end, comment[behind..end].trim())
    })
}

/// Returns `text` without the comments that fixes wrote into it, or `None` if it has none. With `before`, a comment
/// stays unless that text has it too: it is being typed.
#[must_use]
pub fn without_own_comments(text: &str, before: Option<&str>) -> Option<String> {
    if !text.contains(MARK) {
        return None;
    }
    let known: Vec<&str> =
        before.unwrap_or_default().lines().flat_map(|line| own_comments(line).map(|(range, _)| &line[range])).collect();
    let mut without = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let content = line.trim_end_matches(['\r', '\n']);
        // After the start of a line, the mark may also be inside a string; the lexer decides.
        let comment = line_end(content, 0).map_or(content.len(), |line| line.comment);
        let mut from = 0;
        for (range, _) in own_comments(&content[comment..]) {
            if before.is_some() && !known.contains(&&content[comment + range.start..comment + range.end]) {
                continue;
            }
            // If two comments have no blank between them, the first range overlaps the second.
            without.push_str(content.get(from..comment + range.start).unwrap_or_default());
            from = comment + range.end;
        }
        without.push_str(&line[from..]);
    }
    (without != text).then_some(without)
}

/// End of a line.
struct LineEnd {
    /// Offset after the last token, where blanks and the comment begin.
    comment: usize,
    /// Offset of the line break.
    end: usize,
}

/// Returns the end of the line that contains `from`, the end of a value. Returns `None` if the statement continues on
/// the next line. Also returns `None` if a string is left open on the line, because it would include a comment.
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
    fn own_comments_are_removed_and_others_stay() {
        let text = "a = 1  # mine\nbatch_size = 10  # mine  # headroom: fits L4\r\nbias = True  # headroom: fits L4";
        let without = "a = 1  # mine\nbatch_size = 10  # mine\r\nbias = True";
        assert_eq!(without_own_comments(text, None).as_deref(), Some(without));
        assert_eq!(without_own_comments(without, None), None);
        assert_eq!(without_own_comments("x = '# headroom: y'\n", None), None);
        // A comment that was not there before is being typed.
        assert_eq!(without_own_comments(text, Some("bias = 1  # headroom: fits L")), None);
        let half = "a = 1  # mine\nbatch_size = 10  # mine  # headroom: fits L4\r\nbias = True";
        let before = Some("bias = True  # headroom: fits L4");
        assert_eq!(
            without_own_comments(&format!("{half}  # headroom: fits L"), before).as_deref(),
            Some(format!("{without}  # headroom: fits L").as_str())
        );
        let joined = "batch_size = 1  # headroom: y# headroom: y# headroom: y\n";
        assert_eq!(without_own_comments(joined, None).as_deref(), Some("batch_size = 1\n"));
        assert_eq!(without_own_comments("# headroom: y # mine\n", None).as_deref(), Some(" # mine\n"));
    }

    #[track_caller]
    fn check(text: &str, changes: &[(&str, Value, &str)], expected: &str) {
        assert_eq!(patch(text, changes), expected);
    }

    #[test]
    fn value_is_rewritten_in_place() {
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
        // A comment on another line stays, unless the same change wrote it.
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
    fn dependent_values_are_recomputed() {
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
