//! How many registers an entry may take: `kernels/cuda/registers.txt`.
//!
//! A change that takes a kernel past its bound costs occupancy unseen, so it is an error until somebody says that it is
//! worth it by raising the bound in the same change.

use super::{Built, Usages, usage::Usage};
use crate::failure::{Doing, Failure, Result};
use std::{collections::BTreeMap, fmt, fs, io, path::Path};

/// Registers are handed out by eights.
const STEP: u64 = 8;
const HEAD: &str = "\
# Registers that a thread of each entry may take, on any architecture. `cargo xtask kernels` adds entries that are new, with
# what they take up to the next multiple of 8, as registers are handed out; it never raises a bound. Spills and memory for
# what is addressed fail without one.
";

/// The table.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Bounds(BTreeMap<String, u64>);

impl Bounds {
    /// Reads it; none where there is no file.
    pub fn read(path: &Path) -> Result<Self> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).doing(|| format!("read {}", path.display())),
        }
    }

    fn parse(text: &str) -> Result<Self> {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let mut bounds = BTreeMap::new();
        for line in lines {
            let read = line.split_once(' ').and_then(|(entry, bound)| Some((entry, bound.parse().ok()?)));
            let (entry, bound) = read.ok_or_else(|| wrong(line, "is not an entry and a number"))?;
            if bounds.insert(entry.to_owned(), bound).is_some() {
                return Err(wrong(line, "is of an entry that has a bound already"));
            }
        }
        Ok(Self(bounds))
    }

    /// Adds what is new, and forgets what is gone.
    pub fn follow(&mut self, built: &[Built]) {
        let most: BTreeMap<&String, u64> = entries(built).map(|(entry, usages)| (entry, most(usages))).collect();
        self.0.retain(|entry, _| most.contains_key(entry));
        for (entry, most) in most {
            self.0.entry(entry.clone()).or_insert(most.next_multiple_of(STEP));
        }
    }

    /// What is past its bound, or needs memory where registers were meant.
    pub fn findings(&self, built: &[Built]) -> Vec<String> {
        let mut findings: Vec<String> = built.iter().flat_map(|kernel| kernel.warnings.clone()).collect();
        for (entry, usages) in newest(built) {
            for (architecture, usage) in usages {
                findings.extend(
                    local_memory(usage).map(|what| format!("{entry} on {architecture} by the newest ptxas: {what}")),
                );
            }
        }
        for (entry, usages) in entries(built) {
            for (architecture, usage) in usages {
                findings.extend(local_memory(usage).map(|what| format!("{entry} on {architecture}: {what}")));
            }
            match self.0.get(entry) {
                None => findings.push(format!("{entry} has no line in kernels/cuda/registers.txt")),
                Some(bound) if most(usages) > *bound => findings.push(format!(
                    "{entry} takes {} registers, and kernels/cuda/registers.txt lets it have {bound}: give it fewer, or \
                     raise the bound and say why",
                    most(usages)
                )),
                Some(_) => {}
            }
        }
        let known = |entry: &&String| entries(built).any(|(other, _)| other == *entry);
        let gone = self.0.keys().filter(|entry| !known(entry));
        findings.extend(gone.map(|entry| format!("kernels/cuda/registers.txt names {entry}, which is no entry")));
        findings
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEAD)?;
        self.0.iter().try_for_each(|(entry, bound)| writeln!(f, "{entry} {bound}"))
    }
}

fn wrong(line: &str, why: &str) -> Failure {
    Failure::new(format!("kernels/cuda/registers.txt: `{line}` {why}"))
}

fn entries(built: &[Built]) -> impl Iterator<Item = (&String, &Usages)> {
    built.iter().flat_map(|kernel| &kernel.entries)
}

/// What the newest assembler says of each entry.
fn newest(built: &[Built]) -> impl Iterator<Item = (&String, &Usages)> {
    built.iter().flat_map(|kernel| &kernel.newest)
}

fn most(usages: &Usages) -> u64 {
    usages.iter().map(|(_, usage)| usage.registers).max().unwrap_or(0)
}

/// Both are memory that is slow and that nobody planned.
fn local_memory(usage: &Usage) -> impl Iterator<Item = String> {
    let spills = (usage.spill_bytes > 0).then(|| format!("spills {} bytes", usage.spill_bytes));
    // What is spilled lies there too, and is said once.
    let stack = (usage.stack_bytes > 0 && usage.spill_bytes == 0).then(|| {
        format!("keeps {} bytes a thread in memory: an array whose index is not known ahead?", usage.stack_bytes)
    });
    spills.into_iter().chain(stack)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(entry: &str, registers: u64, usage: Usage) -> Built {
        let usages = [("sm_80", Usage { registers: 8, ..Usage::default() }), ("sm_90", Usage { registers, ..usage })];
        let entries = [(entry.to_owned(), usages.into())].into();
        Built { op: "op".into(), ptx: String::new(), entries, newest: BTreeMap::new(), warnings: vec![] }
    }

    fn bounds(text: &str) -> Bounds {
        Bounds::parse(text).expect("a table")
    }

    #[test]
    fn the_table_follows_the_entries_and_raises_none() {
        let mut bounds = bounds("# Head.\nold 40\nkept 16\n");
        bounds.follow(&[built("kept", 30, Usage::default()), built("new", 33, Usage::default())]);
        assert_eq!(bounds.to_string(), format!("{HEAD}kept 16\nnew 40\n"));
        assert_eq!(Bounds::parse(&bounds.to_string()).expect("what was written"), bounds);
    }

    #[test]
    fn what_is_past_a_bound_is_found() {
        let kernel = |registers| [built("a", registers, Usage::default())];
        assert_eq!(bounds("a 32\n").findings(&kernel(32)), [""; 0]);
        let [found] = &bounds("a 32\n").findings(&kernel(33))[..] else { panic!("one finding") };
        assert!(found.contains("takes 33 registers") && found.contains("have 32"), "{found}");
        assert_eq!(bounds("").findings(&kernel(8)).len(), 1, "an entry without a bound");
        assert_eq!(bounds("a 32\nb 32\n").findings(&kernel(8)).len(), 1, "a bound without an entry");
    }

    #[test]
    fn spills_addressed_arrays_and_warnings_are_found() {
        let of = |usage| bounds("a 32\n").findings(&[built("a", 8, usage)]);
        assert_eq!(of(Usage { spill_bytes: 4, stack_bytes: 8, ..Usage::default() }), ["a on sm_90: spills 4 bytes"]);
        assert_eq!(of(Usage { stack_bytes: 8, ..Usage::default() }).len(), 1);
        let mut warned = built("a", 8, Usage::default());
        warned.warnings.push("a warning".into());
        assert_eq!(bounds("a 32\n").findings(&[warned]), ["a warning"]);
    }

    #[test]
    fn spills_of_the_newest_assembler_are_found() {
        let mut kernel = built("a", 30, Usage::default());
        let spills = Usage { registers: 33, spill_bytes: 16, stack_bytes: 8, ..Usage::default() };
        kernel.newest.insert("a".into(), vec![("sm_100", spills)]);
        assert_eq!(bounds("a 32\n").findings(&[kernel]), ["a on sm_100 by the newest ptxas: spills 16 bytes"]);
    }

    #[test]
    fn a_table_that_cannot_be_read_is_refused() {
        for text in ["a\n", "a b\n", "a 1\na 2\n"] {
            Bounds::parse(text).expect_err(text);
        }
    }
}
