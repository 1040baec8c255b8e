//! Sums the test runners' results: cargo-nextest's summary line, cargo test's result lines, and the skips that tests
//! report.

use std::collections::BTreeMap;

/// A test runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runner {
    Nextest,
    CargoTest,
}

/// Numbers of passed, failed and skipped tests.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
    /// Tests that this machine cannot run, by name, with the reason.
    skips: BTreeMap<String, String>,
}

impl Outcome {
    /// Parses a runner's output. A failure without a summary, such as a compile error, counts as one failed test.
    ///
    /// Only the runner's own lines count, by their form: nextest indents a failed test's output, which may contain
    /// result lines.
    pub fn of_runner(runner: Runner, lines: &[String], success: bool) -> Self {
        let mut outcome = Self::default();
        match runner {
            Runner::Nextest => {
                if let Some(counts) = lines.iter().rev().find_map(|line| nextest_counts(line)) {
                    outcome.add_counts(&without_brackets(counts), ',');
                }
            }
            Runner::CargoTest => {
                let counts = lines.iter().filter_map(|line| line.strip_prefix("test result: ")?.split_once(". "));
                counts.for_each(|(_, counts)| outcome.add_counts(counts, ';'));
            }
        }
        if !success && outcome.failed == 0 {
            outcome.failed = 1;
        }
        outcome
    }

    /// Adds another runner's counts.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        for (name, reason) in other.skips {
            self.skip(&name, &reason);
        }
    }

    /// Counts a test that could not be started, once per name. Returns whether the name is new.
    pub fn skip(&mut self, name: &str, reason: &str) -> bool {
        let is_new = self.skips.insert(name.to_owned(), reason.to_owned()).is_none();
        self.skipped += u64::from(is_new);
        is_new
    }

    /// Counts the skips that tests reported, each a line `name: reason`. Their runner counted them as passed.
    pub fn add_declared_skips(&mut self, text: &str) {
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let (name, reason) = line.split_once(": ").unwrap_or((line, "no reason given"));
            if self.skip(name, reason) {
                self.passed = self.passed.saturating_sub(1);
            }
        }
    }

    /// Returns the skips with their reasons.
    pub fn skips(&self) -> impl Iterator<Item = (&str, &str)> {
        self.skips.iter().map(|(name, reason)| (name.as_str(), reason.as_str()))
    }

    /// Returns the final line.
    pub fn closing_line(&self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }

    fn add_counts(&mut self, counts: &str, separator: char) {
        for part in counts.split(separator) {
            let (number, word) = part.trim().split_once(' ').unwrap_or_default();
            let number = number.parse::<u64>().unwrap_or(0);
            match word {
                "passed" => self.passed += number,
                "failed" | "timed out" | "exec failed" => self.failed += number,
                // "skipped" and "ignored" are tests that were not selected, and bodies of child processes, which their
                // tests start. What a machine cannot run is declared. Others: "measured", "filtered out".
                _ => {}
            }
        }
    }
}

/// Returns the counts in "Summary [ 0.123s] 10 tests run: 8 passed (1 slow), 1 failed, 1 timed out, 3 skipped".
fn nextest_counts(line: &str) -> Option<&str> {
    let (head, counts) = line.trim_start().strip_prefix("Summary [")?.split_once(" run: ")?;
    (head.ends_with("tests") || head.ends_with("test")).then_some(counts)
}

/// The part in brackets belongs to the count before it.
fn without_brackets(text: &str) -> String {
    let mut depth = 0_u32;
    text.chars()
        .filter(|char| {
            match char {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => return depth == 0,
            }
            false
        })
        .collect::<String>()
        .replace(" ,", ",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(runner: Runner, output: &str, success: bool, expected: &str) {
        let lines: Vec<_> = output.lines().map(str::to_owned).collect();
        assert_eq!(Outcome::of_runner(runner, &lines, success).closing_line(), expected);
    }

    #[test]
    fn nextest_is_understood() {
        let check = |output, success, expected| check(Runner::Nextest, output, success, expected);
        check("     Summary [   0.005s] 4 tests run: 4 passed, 0 skipped", true, "4 passed, 0 failed, 0 skipped");
        check("     Summary [   0.005s] 1 test run: 1 passed, 2 skipped", true, "1 passed, 0 failed, 0 skipped");
        check(
            "     Summary [ 61.0s] 9/10 tests run: 5 passed (1 slow, 2 flaky), 2 failed, 1 timed out, 1 exec failed, 3 skipped",
            false,
            "5 passed, 4 failed, 0 skipped",
        );
    }

    #[test]
    fn cargo_test_is_understood() {
        let check = |output, success, expected| check(Runner::CargoTest, output, success, expected);
        check(
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 5 filtered out; finished in 0.00s\n\
             test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            false,
            "7 passed, 2 failed, 0 skipped",
        );
    }

    #[test]
    fn a_failed_test_is_counted_once_though_its_own_result_is_shown() {
        check(
            Runner::Nextest,
            "    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 13 filtered out; finished in 0.28s\n     \
             Summary [   0.871s] 17 tests run: 16 passed, 1 failed, 0 skipped",
            false,
            "16 passed, 1 failed, 0 skipped",
        );
    }

    #[test]
    fn a_runner_that_failed_without_a_count_is_a_failure() {
        for runner in [Runner::Nextest, Runner::CargoTest] {
            check(runner, "error: could not compile `headroom-planner`", false, "0 passed, 1 failed, 0 skipped");
            check(runner, "Summary of the weather: 3 passed", true, "0 passed, 0 failed, 0 skipped");
        }
    }

    #[test]
    fn a_skip_is_counted_once_and_not_as_passed() {
        let mut outcome = Outcome { passed: 3, ..Outcome::default() };
        outcome.add_declared_skips("gpu_forward: no Vulkan driver\n\naxe: no Node\naxe: no Node\n");
        outcome.skip("axe", "Node is not installed");
        assert_eq!(outcome.closing_line(), "1 passed, 0 failed, 2 skipped");
        assert_eq!(outcome.skips().count(), 2);
    }
}
