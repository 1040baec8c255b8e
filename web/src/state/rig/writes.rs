//! A text that a run's checkpoint writes: what the worker told, put together.

use headroom_shared::demo::plain::{Kind, heard};

use crate::text::{self, say};

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Nothing was fetched.
    #[default]
    Closed,
    /// The worker begins, and fetches.
    Loading,
    /// A model waits.
    Ready,
    /// It writes.
    Writing,
    /// There is no model, and why is said.
    Failed,
}

/// Everything that was told. A text ends by itself, so that it has its bound.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Writes {
    /// How far it is.
    pub stage: Stage,
    /// The iteration whose checkpoint was opened.
    pub iter: Option<u64>,
    /// How far the weights are, what runs them, or what is wrong.
    pub said: String,
    /// The prompt and what was written.
    pub text: String,
    /// How fast.
    pub rate: String,
    /// Why the text ended, or why a prompt was not read.
    pub ended: String,
}

impl Writes {
    /// A worker begins. The text of the one before stays until there is another.
    pub fn begin(&mut self) {
        let text = std::mem::take(&mut self.text);
        *self = Self { stage: Stage::Loading, text, ..Self::default() };
    }

    /// Takes what the worker tells.
    pub fn hear(&mut self, message: &str) {
        let Some((kind, words)) = heard(message) else { return };
        match kind {
            Kind::Iteration => self.iter = words.parse().ok(),
            Kind::Progress => words.clone_into(&mut self.said),
            Kind::Ready => {
                words.clone_into(&mut self.said);
                // A checkpoint is opened for a text, which comes next.
                self.write();
            }
            Kind::Began => words.clone_into(&mut self.text),
            Kind::Adds => self.text.push_str(words),
            Kind::Rate => words.clone_into(&mut self.rate),
            Kind::Ended | Kind::Refused => {
                words.clone_into(&mut self.ended);
                self.stage = Stage::Ready;
            }
            Kind::Failed | Kind::Replaced => self.fail(words.to_owned()),
        }
    }

    /// The model writes, or is about to.
    pub fn write(&mut self) {
        self.stage = Stage::Writing;
        self.rate.clear();
        self.ended.clear();
    }

    /// The worker stopped, and the browser says why.
    pub fn died(&mut self, reason: String) {
        self.fail(say(&text::rig_writes_died(reason)));
    }

    fn fail(&mut self, said: String) {
        (self.stage, self.said) = (Stage::Failed, said);
        self.rate.clear();
    }

    /// Whether a checkpoint is newer than the one that is open.
    pub fn is_older_than(&self, iter: u64) -> bool {
        self.iter.is_some_and(|open| open < iter) && matches!(self.stage, Stage::Ready | Stage::Writing)
    }
}

/// What a press fetches of a checkpoint of that length: weights, of which the optimizer keeps two moments besides.
pub const fn weights_bytes(file_bytes: u64) -> u64 {
    file_bytes / 3
}

#[cfg(test)]
mod tests {
    use headroom_shared::demo::plain::told;

    use super::*;

    fn heard_all(writes: &mut Writes, messages: &[(Kind, &str)]) {
        for (kind, words) in messages {
            writes.hear(&told(*kind, words));
        }
    }

    #[test]
    fn a_text_is_put_together_and_the_next_takes_its_place() {
        let mut writes = Writes::default();
        writes.begin();
        assert_eq!(writes.stage, Stage::Loading);
        heard_all(&mut writes, &[(Kind::Iteration, "250"), (Kind::Progress, "50 %")]);
        assert_eq!((writes.iter, writes.said.as_str()), (Some(250), "50 %"));
        heard_all(
            &mut writes,
            &[(Kind::Ready, "CPU"), (Kind::Began, "Once"), (Kind::Adds, " upon"), (Kind::Adds, " a")],
        );
        assert_eq!((writes.stage, writes.text.as_str(), writes.said.as_str()), (Stage::Writing, "Once upon a", "CPU"));
        heard_all(&mut writes, &[(Kind::Rate, "9 tokens/s"), (Kind::Ended, "2 tokens written.")]);
        assert_eq!((writes.stage, writes.rate.as_str()), (Stage::Ready, "9 tokens/s"));
        writes.write();
        heard_all(&mut writes, &[(Kind::Began, "Then")]);
        assert_eq!((writes.text.as_str(), writes.rate.as_str(), writes.ended.as_str()), ("Then", "", ""));
        writes.hear("{}");
        assert_eq!(writes.text, "Then", "what is not understood changes nothing");
    }

    #[test]
    fn a_prompt_that_is_not_read_leaves_the_model_and_a_failure_leaves_none() {
        let mut writes = Writes::default();
        heard_all(&mut writes, &[(Kind::Ready, "CPU"), (Kind::Refused, "It does not know é.")]);
        assert_eq!((writes.stage, writes.ended.as_str()), (Stage::Ready, "It does not know é."));
        heard_all(&mut writes, &[(Kind::Iteration, "250"), (Kind::Replaced, "There is a newer one.")]);
        assert_eq!((writes.stage, writes.said.as_str()), (Stage::Failed, "There is a newer one."));
        assert!(!writes.is_older_than(500), "what failed is begun again, with the newest");
        writes.begin();
        assert_eq!((writes.iter, writes.said.as_str()), (None, ""));
        writes.died("out of memory".to_owned());
        assert!(writes.stage == Stage::Failed && writes.said.contains("out of memory"), "{}", writes.said);
    }

    #[test]
    fn a_newer_checkpoint_is_offered_once_one_is_open() {
        let mut writes = Writes::default();
        assert!(!writes.is_older_than(500));
        heard_all(&mut writes, &[(Kind::Iteration, "250"), (Kind::Ready, "CPU")]);
        assert!(writes.is_older_than(500) && !writes.is_older_than(250));
    }
}
