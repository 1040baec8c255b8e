//! Description of a command for help, completions and manual, next to its option table.

use std::ffi::OsString;

use super::{
    Error, Exit,
    args::{COMMON, OptionHelp, PROGRAM, UsageError, VERSION, options_help, shown},
    exit, print,
};

/// Kind of a command's positional arguments, for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// No arguments.
    None,
    Files,
    /// A name that cannot be completed.
    Name,
    /// A recorded run.
    Run,
    /// Recorded runs.
    Runs,
    /// A program with its own arguments.
    Program,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Name of a command and of its subcommand.
    Command,
}

/// A command or a subcommand.
#[derive(Clone, Copy)]
pub struct Command {
    /// Words after `headroom`, such as `runs export`.
    pub name: &'static str,
    /// One-line summary, for lists of commands.
    pub summary: &'static str,
    /// Description.
    pub about: &'static str,
    /// Usage lines.
    pub usage: &'static [&'static str],
    /// Description of the arguments, preformatted.
    pub arguments: &'static str,
    /// Options of this command.
    pub options: fn() -> Vec<OptionHelp>,
    /// Whether nanoGPT's settings are accepted as options.
    pub takes_settings: bool,
    /// Kind of the positional arguments.
    pub words: Words,
    pub subcommands: &'static [&'static Self],
    /// Additional notes, preformatted.
    pub notes: &'static str,
    /// Exit statuses besides 2 and 3, which all commands have.
    pub exits: &'static [(u8, &'static str)],
    /// Example commands.
    pub examples: &'static [&'static str],
    /// Entry point.
    pub run: fn(Vec<OsString>) -> Result<Exit, Error>,
}

impl Command {
    /// An empty command, for the default of most fields.
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

    /// Last word of the name: `export` of `runs export`.
    pub fn word(&self) -> &'static str {
        self.name.rsplit(' ').next().unwrap_or(self.name)
    }

    /// Name with the program's name.
    pub fn full_name(&self) -> String {
        if self.name.is_empty() { PROGRAM.to_owned() } else { format!("{PROGRAM} {}", self.name) }
    }

    /// Options of this command and the common ones.
    pub fn all_options(&self) -> Vec<OptionHelp> {
        let version = self.name.is_empty().then_some(VERSION);
        (self.options)().into_iter().chain(shown(COMMON)).chain(version).collect()
    }

    /// All exit statuses, in order.
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

    /// Subcommand with the name `word`.
    pub fn subcommand(&self, word: &str) -> Option<&'static Self> {
        self.subcommands.iter().find(|command| command.word() == word).copied()
    }

    /// This command and all its descendants.
    pub fn tree(&'static self) -> Vec<&'static Self> {
        let below = self.subcommands.iter().flat_map(|command| command.tree());
        [self].into_iter().chain(below).collect()
    }

    /// Formats the help.
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

    /// Prints the help.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn print_help(&self) -> Result<Exit, Error> {
        print::data(&self.help())?;
        Ok(Exit::Success)
    }

    /// Runs the subcommand that the arguments name; options may precede it. Without one, runs `alone`.
    ///
    /// # Errors
    /// The subcommand is unknown or failed.
    pub fn dispatch(&'static self, mut args: Vec<OsString>, alone: Option<&'static Self>) -> Result<Exit, Error> {
        if let Some((at, is_after_unknown)) = self.first_word(&args) {
            let word = args[at].to_string_lossy().into_owned();
            let command = self.subcommand(&word);
            // After a misspelt option, the word may be its value. The command without a word reports the option.
            if let (None, true, Some(alone)) = (command, is_after_unknown, alone) {
                return (alone.run)(args);
            }
            args.remove(at);
            let Some(command) = command else {
                let command = word.chars().take(80).collect();
                let rest = args.split_off(at);
                return Err(UsageError::UnknownCommand { group: self.name, command, rest }.into());
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

    /// Position of the first word that is neither an option nor an option's value, and whether an unknown option
    /// precedes it.
    fn first_word(&self, args: &[OsString]) -> Option<(usize, bool)> {
        let options: Vec<OptionHelp> = self.subcommands.iter().flat_map(|command| command.all_options()).collect();
        let known = |option: &str| {
            let is_meant = |known: &&OptionHelp| match option.strip_prefix("--") {
                Some(name) => known.name == name,
                None => option.chars().eq(['-'].into_iter().chain(known.short())),
            };
            options.iter().find(is_meant)
        };
        let (mut at, mut is_after_unknown) = (0, false);
        while let Some(arg) = args.get(at) {
            let arg = arg.to_string_lossy();
            if arg == "--" {
                return None;
            }
            if !arg.starts_with('-') {
                return Some((at, is_after_unknown));
            }
            let (name, value) = arg.split_once('=').map_or((&*arg, None), |(name, value)| (name, Some(value)));
            let option = known(name);
            is_after_unknown |= option.is_none();
            at += 1 + usize::from(value.is_none() && option.is_some_and(|option| option.value.is_some()));
        }
        None
    }
}
