//! Mistakes of one line that tests have to catch: `mutations.txt`.

use std::sync::LazyLock;

use thiserror::Error;

/// A mistake in one line of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// The entry.
    pub entry: String,
    /// Its name, which of an entry's mistakes is its own.
    pub name: String,
    /// What the line has, with one blank between words.
    find: String,
    /// Which of the entry's lines that have it, counted from 1.
    at: usize,
    /// What the line has instead; where it is empty, the whole line is gone.
    replace: String,
}

/// Why a mistake cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{entry} with {name}: {what}")]
pub struct NoMutation {
    entry: String,
    name: String,
    what: String,
}

/// All that are listed.
///
/// # Panics
/// The list has something else than mutations.
pub fn mutations() -> &'static [Mutation] {
    static ALL: LazyLock<Vec<Mutation>> = LazyLock::new(|| read(include_str!("../mutations.txt")));
    &ALL
}

fn read(text: &str) -> Vec<Mutation> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let pairs: Vec<(&str, &str)> = lines
        .map(|line| line.split_once('=').map(|(key, value)| (key.trim(), value.trim())).unwrap_or_default())
        .collect();
    let mutations = pairs.chunks(5).map(|five| match five {
        [("entry", entry), ("name", name), ("find", find), ("at", at), ("replace", replace)] => Mutation {
            entry: (*entry).to_owned(),
            name: (*name).to_owned(),
            find: (*find).to_owned(),
            at: at.parse().unwrap_or(0),
            replace: (*replace).to_owned(),
        },
        other => panic!("mutations.txt has no mutation here: {other:?}"),
    });
    mutations.collect()
}

impl Mutation {
    /// The file of PTX with the mistake in it.
    ///
    /// # Errors
    /// The file has no such entry or line.
    pub fn apply(&self, text: &str) -> Result<String, NoMutation> {
        let no = |what: String| NoMutation { entry: self.entry.clone(), name: self.name.clone(), what };
        let head = format!(".visible .entry {}(", self.entry);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let first =
            lines.iter().position(|line| *line == head).ok_or_else(|| no("there is no such entry".to_owned()))?;
        let end = lines[first..].iter().position(|line| line == "}").map_or(lines.len(), |length| first + length);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let found: Vec<usize> = (first..end).filter(|&at| words(&lines[at]).contains(&self.find)).collect();
        let at = self.at.checked_sub(1).and_then(|at| found.get(at)).ok_or_else(|| {
            no(format!("{} lines have `{}`, and it is to be number {}", found.len(), self.find, self.at))
        })?;
        lines[*at] = match &*self.replace {
            "" => String::new(),
            replace => words(&lines[*at]).replacen(&self.find, replace, 1),
        };
        Ok(lines.join("\n") + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = ".visible .entry a(\n)\n{\n\tadd.s32 \t%r1, %r2, 1;\n\tbar.sync \t0;\n\tbar.sync \t0;\n}\n";

    fn mutation(find: &str, at: usize, replace: &str) -> Mutation {
        let [entry, name, find, replace] = ["a", "m", find, replace].map(str::to_owned);
        Mutation { entry, name, find, at, replace }
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
    fn a_line_that_is_not_there_is_told() {
        let error = mutation("bar.sync 0;", 3, "").apply(TEXT).expect_err("there are two");
        assert_eq!(error.to_string(), "a with m: 2 lines have `bar.sync 0;`, and it is to be number 3");
        let other = Mutation { entry: "b".to_owned(), ..mutation("bar", 1, "") };
        assert!(other.apply(TEXT).is_err());
    }
}
