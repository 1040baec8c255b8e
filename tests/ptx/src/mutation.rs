//! Deliberate mistakes that tests must detect: `mutations.txt`.

use std::sync::LazyLock;

use thiserror::Error;

/// A deliberate mistake in a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// The kernel's name.
    pub entry: String,
    /// The mutation's name, unique within its kernel.
    pub name: String,
    edits: Vec<Edit>,
}

/// A change of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Edit {
    /// The text to replace, with single spaces between words.
    find: String,
    /// The number of the matching line in the kernel, counted from 1.
    at: usize,
    /// The replacement, which may have several instructions; if empty, the line is removed.
    replace: String,
}

/// The error for a mutation that does not match the PTX.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{entry} with {name}: {what}")]
pub struct NoMutation {
    entry: String,
    name: String,
    what: String,
}

/// All mutations of the list.
///
/// # Panics
/// If the list is malformed.
pub fn mutations() -> &'static [Mutation] {
    static ALL: LazyLock<Vec<Mutation>> = LazyLock::new(|| read(include_str!("../mutations.txt")));
    &ALL
}

fn read(text: &str) -> Vec<Mutation> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let mut mutations: Vec<Mutation> = Vec::new();
    for line in lines {
        let (key, value) = line.split_once('=').map(|(key, value)| (key.trim(), value.trim())).unwrap_or_default();
        let value = value.to_owned();
        if key == "entry" {
            mutations.push(Mutation { entry: value, name: String::new(), edits: Vec::new() });
            continue;
        }
        let mutation = mutations.last_mut().expect("mutations.txt begins with an entry");
        let edit = mutation.edits.last_mut();
        match (key, edit) {
            ("name", None) => mutation.name = value,
            ("find", _) => mutation.edits.push(Edit { find: value, at: 0, replace: String::new() }),
            ("at", Some(edit)) => edit.at = value.parse().unwrap_or(0),
            ("replace", Some(edit)) => edit.replace = value,
            _ => panic!("mutations.txt has no mutation here: {line:?}"),
        }
    }
    mutations
}

impl Mutation {
    /// Number of lines that it changes, at least 1.
    #[must_use]
    pub fn n_lines(&self) -> usize {
        self.edits.len()
    }

    /// Returns the PTX file with this mistake.
    ///
    /// # Errors
    /// The file does not contain the kernel or the line.
    pub fn apply(&self, text: &str) -> Result<String, NoMutation> {
        let no = |what: String| NoMutation { entry: self.entry.clone(), name: self.name.clone(), what };
        let head = format!(".visible .entry {}(", self.entry);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let first =
            lines.iter().position(|line| *line == head).ok_or_else(|| no("the entry does not exist".to_owned()))?;
        let end = lines[first..].iter().position(|line| line == "}").map_or(lines.len(), |length| first + length);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        // All lines are found before the first one changes.
        let mut changed = Vec::new();
        for Edit { find, at, replace } in &self.edits {
            let found: Vec<usize> = (first..end).filter(|&line| words(&lines[line]).contains(find)).collect();
            let line = at
                .checked_sub(1)
                .and_then(|at| found.get(at))
                .ok_or_else(|| no(format!("{} lines have `{find}`, and it is to be number {at}", found.len())))?;
            let text = if replace.is_empty() { String::new() } else { words(&lines[*line]).replacen(find, replace, 1) };
            changed.push((*line, text));
        }
        for (line, text) in changed {
            lines[line] = text;
        }
        Ok(lines.join("\n") + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = ".visible .entry a(\n)\n{\n\tadd.s32 \t%r1, %r2, 1;\n\tbar.sync \t0;\n\tbar.sync \t0;\n}\n";

    fn mutation(find: &str, at: usize, replace: &str) -> Mutation {
        let [entry, name, find, replace] = ["a", "m", find, replace].map(str::to_owned);
        Mutation { entry, name, edits: vec![Edit { find, at, replace }] }
    }

    #[test]
    fn one_line_is_changed_or_gone() {
        let changed = mutation("add.s32 %r1", 1, "sub.s32 %r1").apply(TEXT).expect("it is there");
        assert!(changed.contains("sub.s32 %r1, %r2, 1;"), "{changed}");
        let gone = mutation("bar.sync 0;", 2, "").apply(TEXT).expect("there are two");
        assert_eq!(gone.matches("bar.sync").count(), 1);
        assert_eq!(gone.lines().count(), TEXT.lines().count(), "lines keep their numbers");
    }

    #[test]
    fn mutation_changes_several_lines() {
        let both = read(
            "entry = a\nname = m\nfind = bar.sync 0;\nat = 1\nreplace =\nfind = bar.sync 0;\nat = 2\nreplace = ret;\n",
        );
        let changed = both[0].apply(TEXT).expect("there are two");
        assert_eq!((changed.matches("bar.sync").count(), changed.matches("ret;").count()), (0, 1), "{changed}");
    }

    #[test]
    fn a_line_that_is_not_there_is_reported() {
        let error = mutation("bar.sync 0;", 3, "").apply(TEXT).expect_err("there are two");
        assert_eq!(error.to_string(), "a with m: 2 lines have `bar.sync 0;`, and it is to be number 3");
        let other = Mutation { entry: "b".to_owned(), ..mutation("bar", 1, "") };
        assert!(other.apply(TEXT).is_err());
    }
}
