//! Limits of the registers per entry: `kernels/cuda/registers.txt`.
//!
//! A change that exceeds a limit silently reduces occupancy. It is therefore an error unless the same change raises the
//! limit.

use super::{CompiledKernel, ResourceUsages, usage::Usage};
use crate::failure::{Failure, IoContext, Result};
use std::{collections::BTreeMap, fmt, fs, io, path::Path};

/// The granularity of register allocation.
const STEP: u64 = 8;
const HEAD: &str = "\
# Registers that a thread of each entry may take, on any architecture. `cargo xtask kernels` adds entries that are new, with
# what they take up to the next multiple of 8, as registers are handed out; it never raises a bound. Spills and memory for
# what is addressed fail without one. A second number is the bound for the newest ptxas, where that takes more.
";

/// The limits of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    pinned: u64,
    /// The limit for the newest assembler, if it needs more.
    newest: Option<u64>,
}

/// The table of limits.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Bounds(BTreeMap<String, Bound>);

impl Bounds {
    /// Reads the table; empty if the file does not exist.
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
            let (entry, bound) = bound(line).ok_or_else(|| wrong(line, "is not an entry and one or two numbers"))?;
            if bounds.insert(entry.to_owned(), bound).is_some() {
                return Err(wrong(line, "is of an entry that has a bound already"));
            }
        }
        Ok(Self(bounds))
    }

    /// Adds new entries, and removes deleted ones.
    pub fn follow(&mut self, built: &[CompiledKernel]) {
        let newest: BTreeMap<&String, u64> = newest(built).map(|(entry, usages)| (entry, most(usages))).collect();
        let pinned: BTreeMap<&String, u64> = entries(built).map(|(entry, usages)| (entry, most(usages))).collect();
        self.0.retain(|entry, _| pinned.contains_key(entry));
        for (entry, most) in pinned {
            let pinned = most.next_multiple_of(STEP);
            let newest = newest.get(entry).map(|most| most.next_multiple_of(STEP)).filter(|newest| *newest > pinned);
            self.0.entry(entry.clone()).or_insert(Bound { pinned, newest });
        }
    }

    /// Returns the entries that exceed their limit, or use local memory.
    pub fn findings(&self, built: &[CompiledKernel]) -> Vec<String> {
        let mut findings: Vec<String> = built.iter().flat_map(|kernel| kernel.warnings.clone()).collect();
        for (entry, usages) in newest(built) {
            for (architecture, usage) in usages {
                findings.extend(
                    local_memory(usage).map(|what| format!("{entry} on {architecture} by the newest ptxas: {what}")),
                );
            }
            let bound = self.0.get(entry).map(|bound| bound.newest.unwrap_or(bound.pinned));
            findings.extend(
                bound
                    .filter(|bound| most(usages) > *bound)
                    .map(|bound| past(entry, most(usages), bound, " by the newest ptxas")),
            );
        }
        for (entry, usages) in entries(built) {
            for (architecture, usage) in usages {
                findings.extend(local_memory(usage).map(|what| format!("{entry} on {architecture}: {what}")));
            }
            match self.0.get(entry) {
                None => findings.push(format!("{entry} has no line in kernels/cuda/registers.txt")),
                Some(Bound { pinned, .. }) if most(usages) > *pinned => {
                    findings.push(past(entry, most(usages), *pinned, ""));
                }
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
        self.0.iter().try_for_each(|(entry, Bound { pinned, newest })| match newest {
            Some(newest) => writeln!(f, "{entry} {pinned} {newest}"),
            None => writeln!(f, "{entry} {pinned}"),
        })
    }
}

/// Parses a line: an entry and its limits.
fn bound(line: &str) -> Option<(&str, Bound)> {
    let mut words = line.split(' ');
    let (entry, pinned) = (words.next()?, words.next()?.parse().ok()?);
    let newest = words.next().map(str::parse).transpose().ok()?;
    words.next().is_none().then_some((entry, Bound { pinned, newest }))
}

fn past(entry: &str, registers: u64, bound: u64, assembler: &str) -> String {
    format!(
        "{entry} takes {registers} registers{assembler}, and kernels/cuda/registers.txt lets it have {bound}: give it \
         fewer, or raise the bound and say why"
    )
}

fn wrong(line: &str, why: &str) -> Failure {
    Failure::new(format!("kernels/cuda/registers.txt: `{line}` {why}"))
}

fn entries(built: &[CompiledKernel]) -> impl Iterator<Item = (&String, &ResourceUsages)> {
    built.iter().flat_map(|kernel| &kernel.entries)
}

/// Returns each entry's usage with the newest assembler.
fn newest(built: &[CompiledKernel]) -> impl Iterator<Item = (&String, &ResourceUsages)> {
    built.iter().flat_map(|kernel| &kernel.newest)
}

fn most(usages: &ResourceUsages) -> u64 {
    usages.iter().map(|(_, usage)| usage.registers).max().unwrap_or(0)
}

/// Both are slow memory that was not planned.
fn local_memory(usage: &Usage) -> impl Iterator<Item = String> {
    let spills = (usage.spill_bytes > 0).then(|| format!("spills {} bytes", usage.spill_bytes));
    // The stack includes spills, which are already reported.
    let stack = (usage.stack_bytes > 0 && usage.spill_bytes == 0).then(|| {
        format!("keeps {} bytes a thread in memory: an array whose index is not known ahead?", usage.stack_bytes)
    });
    spills.into_iter().chain(stack)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(entry: &str, registers: u64, usage: Usage) -> CompiledKernel {
        let usages = [("sm_80", Usage { registers: 8, ..Usage::default() }), ("sm_90", Usage { registers, ..usage })];
        let entries = [(entry.to_owned(), usages.into())].into();
        CompiledKernel { op: "op".into(), ptx: String::new(), entries, newest: BTreeMap::new(), warnings: vec![] }
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
    fn usage_beyond_bound_is_found() {
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
        let spills = Usage { registers: 32, spill_bytes: 16, stack_bytes: 8, ..Usage::default() };
        kernel.newest.insert("a".into(), vec![("sm_100", spills)]);
        assert_eq!(bounds("a 32\n").findings(&[kernel]), ["a on sm_100 by the newest ptxas: spills 16 bytes"]);
    }

    #[test]
    fn registers_of_the_newest_assembler_have_a_bound() {
        let mut kernel = built("a", 30, Usage::default());
        kernel.newest.insert("a".into(), vec![("sm_100", Usage { registers: 34, ..Usage::default() })]);
        let findings = |table: &str| bounds(table).findings(std::slice::from_ref(&kernel));
        assert_eq!(findings("a 40\n"), [""; 0], "the pinned bound is enough");
        assert_eq!(findings("a 32 40\n"), [""; 0]);
        let [found] = &findings("a 32\n")[..] else { panic!("one finding") };
        assert!(found.contains("takes 34 registers by the newest ptxas") && found.contains("have 32"), "{found}");
        let mut new = Bounds::default();
        new.follow(&[kernel]);
        assert_eq!(new.to_string(), format!("{HEAD}a 32 40\n"));
        assert_eq!(Bounds::parse(&new.to_string()).expect("what was written"), new);
    }

    #[test]
    fn a_table_that_cannot_be_read_is_refused() {
        for text in ["a\n", "a b\n", "a 1 b\n", "a 1 2 3\n", "a 1\na 2\n"] {
            Bounds::parse(text).expect_err(text);
        }
    }
}
