//! A run that a search found.

use serde_json::{Map, Value as Json};

use crate::{
    memory::program::Phase,
    nanogpt::{Source, Value},
    oom::{Kind, Message},
    session::Options,
    train_config::Attention,
};
use headroom_text::{self as text, Key, Table, Text};

/// A run whose simulated failure matches the figures of the message.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// nanoGPT keys with their values.
    pub keys: Vec<(&'static str, Value)>,
    /// Settings that the message does not show, with the values of the simulated run.
    pub assumed: Vec<(&'static str, Value)>,
    /// GPU as described by the message, with the allocator and the attention backend of the run.
    pub options: Options,
    /// Figures of the message that the run reproduces.
    pub figures: Figures,
    /// Phase in which the run allocates the tensor.
    pub phase: Phase,
    /// Name of the tensor of the requested size.
    pub tensor: String,
    /// Short description of the run: `GPT-2 124M, batch 64 × 1024, compiled`.
    pub text: Text,
}

/// Figures of a message that a run reproduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figures {
    /// Every figure that the message prints.
    All,
    /// The requested and the allocated memory.
    Allocated {
        /// Difference from the printed reserved memory, in bytes.
        reserved_difference_bytes: u64,
    },
    /// The requested size only, because the message lacks other figures.
    Requested,
}

impl Figures {
    /// Returns the name in the JSON contract.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Allocated { .. } => "requested_and_allocated",
            Self::Requested => "requested",
        }
    }
}

impl Solution {
    /// Returns the keys as a config file, one per line.
    #[must_use]
    pub fn config(&self) -> String {
        config_of(&self.keys)
    }

    /// Returns the keys as a config file that also sets the assumed ones, each with a comment.
    #[must_use]
    pub fn config_with_assumed(&self) -> String {
        let is_new = |key: &str| !self.keys.iter().any(|(of_run, _)| *of_run == key);
        let of_run =
            self.keys.iter().map(|(key, value)| (key, value, self.assumed.iter().any(|(name, _)| name == key)));
        let added = self.assumed.iter().filter(|(key, _)| is_new(key)).map(|(key, value)| (key, value, true));
        let line =
            |(key, value, is_assumed)| format!("{key} = {value}{}\n", if is_assumed { "  # assumed" } else { "" });
        of_run.chain(added).map(line).collect()
    }

    /// Returns the row of the JSON contract.
    #[must_use]
    pub fn json(&self, table: &Table) -> Json {
        let object = |keys: &[(&'static str, Value)]| {
            Json::Object(keys.iter().map(|(key, value)| ((*key).to_owned(), value.to_json())).collect())
        };
        let mut row = Map::new();
        let mut put = |key: &str, value: Json| row.insert(key.to_owned(), value);
        put("run", Json::from(table.say(&self.text)));
        put("config", object(&self.keys));
        put("assumed", object(&self.assumed));
        put("expandable_segments", Json::from(self.options.expandable_segments));
        put("math_attention", Json::from(self.options.attention == Attention::Math));
        put("trainer", Json::from("nanogpt"));
        put("exact", Json::from(self.is_exact()));
        put("figures", Json::from(self.figures.name()));
        put("phase", Json::from(self.phase.name()));
        put("tensor", Json::from(self.tensor.as_str()));
        Json::Object(row)
    }
}

fn config_of(keys: &[(&'static str, Value)]) -> String {
    keys.iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
}

/// Returns the keys as a config source that resolves like a user's file.
pub(in crate::oom) fn source_of(keys: &[(&'static str, Value)]) -> Source {
    Source::File { name: "config.py".to_owned(), text: config_of(keys) }
}

/// Returns the figures that an exact solution needs and the message lacks, in words. Returns `None` if it has them all,
/// and for messages of other programs.
#[must_use]
pub fn missing_figures(message: &Message) -> Option<Text> {
    if message.kind != Kind::Pytorch {
        return None;
    }
    let figures: [(bool, Key); 4] = [
        (message.requested.is_some(), text::LACKS_REQUESTED),
        (message.total.is_some(), text::LACKS_TOTAL),
        (message.allocated.is_some(), text::LACKS_ALLOCATED),
        (message.reserved.is_some(), text::LACKS_RESERVED),
    ];
    let missing = figures.into_iter().filter(|(is_there, _)| !is_there).map(|(_, figure)| Text::from(figure));
    missing.reduce(text::lacks_and)
}

/// A run that a search found.
pub trait FoundRun {
    /// Figures of the message that the run reproduces.
    fn figures(&self) -> Figures;

    /// Short description of the run.
    fn text(&self) -> &Text;

    /// Names of the settings that the message does not show.
    fn assumed(&self) -> Vec<&'static str>;

    /// Whether the run reproduces every printed figure.
    fn is_exact(&self) -> bool {
        self.figures() == Figures::All
    }

    /// The description, with the difference from the message if there is one. `size` formats bytes.
    fn described(&self, size: impl FnOnce(u64) -> String) -> Text {
        match self.figures() {
            Figures::Allocated { reserved_difference_bytes } => {
                text::near_run(self.text().clone(), size(reserved_difference_bytes))
            }
            Figures::All | Figures::Requested => self.text().clone(),
        }
    }
}

impl FoundRun for Solution {
    fn figures(&self) -> Figures {
        self.figures
    }

    fn text(&self) -> &Text {
        &self.text
    }

    fn assumed(&self) -> Vec<&'static str> {
        self.assumed.iter().map(|(name, _)| *name).collect()
    }
}

/// Returns the sentence above the solutions of a message. `message` is the one that was searched. `has_config` is true
/// if a config is known and its run does not agree with the message.
#[must_use]
pub fn headline<S: FoundRun>(solutions: &[S], message: &Message, has_config: bool) -> Text {
    match (solutions, missing_figures(message)) {
        ([], Some(missing)) if has_config => text::unsolved_lacks_with_config(missing),
        ([], Some(missing)) => text::unsolved_lacks(missing),
        ([], None) if has_config => text::NO_COMMON_RUN_EITHER.into(),
        ([], None) => text::CONFIG_SAYS_MORE.into(),
        ([first, ..], Some(missing)) if first.figures() == Figures::Requested => text::solved_by_size(missing),
        ([first, ..], None) if first.figures() == Figures::Requested => text::SOLVED_OTHER_MEMORY.into(),
        ([only], _) if only.is_exact() => text::solved_one(only.text().clone()),
        ([first, ..], _) if first.is_exact() => text::solved_several(solutions.len()),
        _ => text::SOLVED_NEAR.into(),
    }
}

/// Returns the sentence that names the settings that the message does not show. Returns `None` if it shows all.
#[must_use]
pub fn not_shown<S: FoundRun>(solutions: &[S]) -> Option<Text> {
    let mut names: Vec<&'static str> = vec![];
    for name in solutions.iter().flat_map(FoundRun::assumed) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    (!names.is_empty()).then(|| text::not_shown(text::names(names)))
}
