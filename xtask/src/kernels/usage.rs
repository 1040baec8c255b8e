//! Resource usage of an entry, parsed from the output of `ptxas --verbose`.

use super::{CompiledKernel, ResourceUsages};
use std::collections::BTreeMap;

/// Usage of an entry on one architecture.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Registers per thread.
    pub registers: u64,
    /// Static shared memory per block, in bytes.
    pub shared_bytes: u64,
    /// Stack per thread in bytes, for indexed arrays that cannot be in registers.
    pub stack_bytes: u64,
    /// Spill stores and loads, in bytes.
    pub spill_bytes: u64,
}

/// ptxas's report on a file and an architecture.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Usage by the entry's name.
    pub entries: BTreeMap<String, Usage>,
    /// Warnings, and functions that are called instead of inlined.
    pub warnings: Vec<String>,
}

/// Parses a report; `None` if figures or entries are missing.
pub fn read(said: &str) -> Option<Report> {
    let mut report = Report::default();
    let mut entry = String::new();
    for line in said.lines().map(str::trim) {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            entry = rest.split_once('\'')?.0.to_owned();
            report.entries.insert(entry.clone(), Usage::default());
        } else if let Some((_, function)) = line.split_once("Function properties for ") {
            if function != entry {
                report.warnings.push(format!("{function} is called, not inlined: functions are DEVICE"));
            }
        } else if line.contains(" bytes stack frame") {
            let spills = before(line, " bytes spill stores")? + before(line, " bytes spill loads")?;
            let usage = report.entries.get_mut(&entry)?;
            usage.stack_bytes += before(line, " bytes stack frame")?;
            usage.spill_bytes += spills;
        } else if line.contains(": Used ") {
            let usage = report.entries.get_mut(&entry)?;
            usage.registers = before(line, " registers")?;
            usage.shared_bytes = before(line, " bytes smem").unwrap_or(0);
        } else if line.contains("warning") {
            report.warnings.push(line.to_owned());
        }
    }
    let complete = report.entries.values().all(|usage| usage.registers > 0) && !report.entries.is_empty();
    complete.then_some(report)
}

/// The number before some words.
fn before(line: &str, words: &str) -> Option<u64> {
    line.split_once(words)?.0.rsplit(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// Returns a table with a line per entry, for display.
pub fn table(built: &[CompiledKernel]) -> String {
    let entries = built.iter().flat_map(|kernel| &kernel.entries);
    let width = entries.clone().map(|(entry, _)| entry.len()).max().unwrap_or(0);
    let line = |(entry, usages): (&String, &ResourceUsages)| {
        let each = usages.iter().map(|(architecture, usage)| format!("{architecture} {}", usage.registers));
        format!("{entry:<width$}  registers: {}\n", each.collect::<Vec<_>>().join(", "))
    };
    entries.map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
ptxas info    : 12 bytes gmem, 24 bytes cmem[4]
ptxas info    : Compiling entry function 'global_norm_root' for 'sm_80'
ptxas info    : Function properties for global_norm_root
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 22 registers, used 1 barriers, 372 bytes cmem[0]
ptxas info    : Compile time = 7.904 ms
ptxas info    : Compiling entry function 'other' for 'sm_80'
ptxas info    : Function properties for other
    256 bytes stack frame, 16 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 62 registers, used 1 barriers, 256 bytes cumulative stack size, 128 bytes smem, 364 bytes cmem[0]
";

    #[test]
    fn figures_are_read() {
        let report = read(SAID).expect("a report");
        assert_eq!(report.warnings, [""; 0]);
        assert_eq!(report.entries["global_norm_root"], Usage { registers: 22, ..Usage::default() });
        let other = Usage { registers: 62, shared_bytes: 128, stack_bytes: 256, spill_bytes: 36 };
        assert_eq!(report.entries["other"], other);
    }

    #[test]
    fn warnings_and_calls_are_seen() {
        let warning = "ptxas warning : Value of threads per SM for entry other is out of range.";
        let call = "ptxas info    : Function properties for helper\n    0 bytes stack frame, 4 bytes spill stores, 0 bytes \
                    spill loads";
        let report = read(&format!("{warning}\n{SAID}{call}\n")).expect("a report");
        assert_eq!(report.warnings.len(), 2, "{:?}", report.warnings);
        assert_eq!(report.entries["other"].spill_bytes, 40, "a callee's spills count");
    }

    #[test]
    fn unparsed_output_is_an_error() {
        assert_eq!(read(""), None);
        assert_eq!(read(&SAID.replace("Used 62 registers", "Used many registers")), None);
        assert_eq!(read(&SAID.replace("16 bytes spill stores", "spill stores 16")), None);
        assert_eq!(read(&SAID.replace(": Used", ": Takes")), None);
    }
}
