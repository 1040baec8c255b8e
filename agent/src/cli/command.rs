//! What a command is to help, completions and the manual: one value a command, beside its table of options.

use std::ffi::OsString;

use super::{
    Error, Exit,
    args::{COMMON, PROGRAM, Shown, UsageError, VERSION, options_help, shown},
    exit, print,
};

/// What the bare words of a command are, for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// It takes none.
    None,
    /// Files.
    Files,
    /// A name that nothing completes.
    Name,
    /// A program with its own words.
    Program,
    /// One of these.
    Choice(&'static [&'static str]),
    /// The name of a command, and of its subcommand.
    Command,
}

/// A command or a subcommand.
#[derive(Clone, Copy)]
pub struct Command {
    /// Its words behind `headroom`, as in `runs export`.
    pub name: &'static str,
    /// One line, for lists of commands.
    pub summary: &'static str,
    /// What it does: lines of text.
    pub about: &'static str,
    /// Ways to write it, a line each.
    pub usage: &'static [&'static str],
    /// What its words are; laid out as it is printed.
    pub arguments: &'static str,
    /// Its own options.
    pub options: fn() -> Vec<Shown>,
    /// Whether it takes nanoGPT's settings as options.
    pub takes_settings: bool,
    /// What its bare words are.
    pub words: Words,
    /// Its subcommands.
    pub subcommands: &'static [&'static Self],
    /// What else there is to know; laid out as it is printed.
    pub notes: &'static str,
    /// Its exit statuses, besides 2 and 3, which all have.
    pub exits: &'static [(u8, &'static str)],
    /// Commands to copy.
    pub examples: &'static [&'static str],
    /// Runs it.
    pub run: fn(Vec<OsString>) -> Result<Exit, Error>,
}

impl Command {
    /// A command with nothing in it, for the fields that most leave out.
    pub const EMPTY: Self = Self {
        name: "",
        summary: "",
        about: "",
        usage: &[],
        arguments: "",
        options: Vec::new,
        takes_settings: false,
        words: Words::None,
        subcommands: &[],
        notes: "",
        exits: &[(0, "success"), (1, "failure")],
        examples: &[],
        run: |_| Ok(Exit::Success),
    };

    /// Its last word: `export` of `runs export`.
    pub fn word(&self) -> &'static str {
        self.name.rsplit(' ').next().unwrap_or(self.name)
    }

    /// Its words, with the program's name.
    pub fn full_name(&self) -> String {
        if self.name.is_empty() { PROGRAM.to_owned() } else { format!("{PROGRAM} {}", self.name) }
    }

    /// Its own options, and those of all commands.
    pub fn all_options(&self) -> Vec<Shown> {
        let version = self.name.is_empty().then_some(VERSION);
        (self.options)().into_iter().chain(shown(COMMON)).chain(version).collect()
    }

    /// Every exit status, in order.
    pub fn statuses(&self) -> Vec<(u8, &'static str)> {
        let mut rows = self.exits.to_vec();
        for row in [exit::USAGE, exit::INPUT_OUTPUT] {
            if rows.iter().all(|(code, _)| *code != row.0) {
                rows.push(row);
            }
        }
        rows.sort_by_key(|(code, _)| *code);
        rows
    }

    /// The subcommand of that word.
    pub fn subcommand(&self, word: &str) -> Option<&'static Self> {
        self.subcommands.iter().find(|command| command.word() == word).copied()
    }

    /// It and everything below it.
    pub fn tree(&'static self) -> Vec<&'static Self> {
        let below = self.subcommands.iter().flat_map(|command| command.tree());
        [self].into_iter().chain(below).collect()
    }

    /// Its help.
    pub fn help(&self) -> String {
        let mut parts = vec![format!("{}\n", self.about.trim_end())];
        let usage: Vec<String> = self.usage.iter().map(|line| format!("{line}\n")).collect();
        parts.push(format!("Usage: {}", usage.join("       ")));
        if !self.arguments.is_empty() {
            parts.push(format!("{}\n", self.arguments.trim_end()));
        }
        if !self.subcommands.is_empty() {
            parts.push(format!("Commands:\n{}", self.commands_help()));
        }
        parts.push(format!("Options:\n{}", options_help(&self.all_options())));
        if !self.notes.is_empty() {
            parts.push(format!("{}\n", self.notes.trim_end()));
        }
        let rows = self.statuses();
        let rows: String = rows.iter().map(|(code, what)| format!("  {code:<3}  {what}\n")).collect();
        parts.push(format!("Exit status:\n{rows}"));
        if !self.examples.is_empty() {
            let examples: String = self.examples.iter().map(|example| format!("  {example}\n")).collect();
            parts.push(format!("Examples:\n{examples}"));
        }
        parts.join("\n")
    }

    fn commands_help(&self) -> String {
        let width = self.subcommands.iter().map(|command| command.word().len()).max().unwrap_or(0);
        let line = |command: &&Self| format!("  {:width$}  {}\n", command.word(), command.summary);
        self.subcommands.iter().map(line).collect()
    }

    /// Prints its help, as it was asked for.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn print_help(&self) -> Result<Exit, Error> {
        print::data(&self.help())?;
        Ok(Exit::Success)
    }

    /// Runs the subcommand that the words name; options may stand before it. Without one, `alone` runs.
    ///
    /// # Errors
    /// There is no such subcommand, or it failed.
    pub fn dispatch(&'static self, mut args: Vec<OsString>, alone: Option<&'static Self>) -> Result<Exit, Error> {
        if let Some(at) = self.first_word(&args) {
            let word = args.remove(at).to_string_lossy().into_owned();
            let Some(command) = self.subcommand(&word) else {
                let command = word.chars().take(80).collect();
                return Err(UsageError::UnknownCommand { group: self.name, command }.into());
            };
            return (command.run)(args);
        }
        if args.iter().any(|arg| arg == "-h" || arg == "--help") {
            return self.print_help();
        }
        match alone {
            Some(command) => (command.run)(args),
            None => {
                print::error(&self.help());
                Ok(Exit::Usage)
            }
        }
    }

    /// Where the first word stands that is neither an option nor an option's value.
    fn first_word(&self, args: &[OsString]) -> Option<usize> {
        let options: Vec<Shown> = self.subcommands.iter().flat_map(|command| command.all_options()).collect();
        let takes_next = |option: &str| {
            let is_meant = |known: &&Shown| match option.strip_prefix("--") {
                Some(name) => known.name == name,
                None => option.chars().eq(['-'].into_iter().chain(known.short())),
            };
            options.iter().find(is_meant).is_some_and(|known| known.value.is_some())
        };
        let mut at = 0;
        while let Some(arg) = args.get(at) {
            let arg = arg.to_string_lossy();
            match &*arg {
                "--" => return None,
                option if option.starts_with('-') => at += 1 + usize::from(takes_next(option)),
                _ => return Some(at),
            }
        }
        None
    }
}
