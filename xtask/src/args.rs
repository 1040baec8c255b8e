//! Parser for xtask's flags.

use crate::failure::{Failure, Result};

/// The arguments that are not yet consumed.
#[derive(Debug)]
pub struct Args(Vec<String>);

impl Args {
    /// Creates the arguments after the command.
    pub fn new(args: impl IntoIterator<Item = String>) -> Self {
        Self(args.into_iter().collect())
    }

    /// Consumes a flag without a value, and returns whether it was given.
    pub fn flag(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|arg| arg != name);
        self.0.len() < before
    }

    /// Consumes a flag with its value: `--port 80` or `--port=80`.
    pub fn value(&mut self, name: &str) -> Result<Option<String>> {
        let with_value =
            |arg: &String| arg.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')).map(str::to_owned);
        if let Some((idx, value)) = self.0.iter().enumerate().find_map(|(idx, arg)| Some((idx, with_value(arg)?))) {
            self.0.remove(idx);
            return Ok(Some(value));
        }
        let Some(idx) = self.0.iter().position(|arg| arg == name) else { return Ok(None) };
        self.0.remove(idx);
        if idx < self.0.len() { Ok(Some(self.0.remove(idx))) } else { Err(usage(format!("{name} needs a value"))) }
    }

    /// Consumes the arguments after `--`.
    pub fn after_dashes(&mut self) -> Vec<String> {
        let Some(idx) = self.0.iter().position(|arg| arg == "--") else { return vec![] };
        let after = self.0.split_off(idx + 1);
        self.0.truncate(idx);
        after
    }

    /// Consumes the first positional argument.
    pub fn free(&mut self) -> Option<String> {
        let idx = self.0.iter().position(|arg| !arg.starts_with('-'))?;
        Some(self.0.remove(idx))
    }

    /// Fails if an argument is left over.
    pub fn finish(self) -> Result<()> {
        match self.0.first() {
            Some(unknown) => Err(usage(format!("unknown argument `{unknown}`"))),
            None => Ok(()),
        }
    }
}

fn usage(what: String) -> Failure {
    Failure::new(what).hint("`cargo xtask help` lists the commands and their flags")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Args {
        Args::new(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn both_spellings_of_a_value_are_taken() {
        for line in ["--port 80 --fast", "--fast --port=80"] {
            let mut args = args(line);
            assert_eq!(args.value("--port").expect("a value").as_deref(), Some("80"));
            assert!(args.flag("--fast") && !args.flag("--fast"));
            args.finish().expect("nothing is left");
        }
    }

    #[test]
    fn unused_argument_is_an_error() {
        args("--prot 80").finish().expect_err("a typing error");
        args("--port").value("--port").expect_err("no value");
    }

    #[test]
    fn the_filter_is_the_argument_without_dashes() {
        let mut args = args("--no-browser token");
        assert_eq!(args.free().as_deref(), Some("token"));
        assert!(args.flag("--no-browser"));
    }
}
