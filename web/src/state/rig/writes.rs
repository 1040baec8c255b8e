//! Text generated from a run's checkpoint, built from the worker's messages.

use headroom_protocol::demo::plain::{WorkerMessage, heard};

use crate::{
    state::format,
    text::{self, Table, Text, say, t},
};

/// The progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// The worker has not been loaded.
    #[default]
    Closed,
    /// The worker and the checkpoint load.
    Loading,
    /// A model is ready.
    Ready,
    /// The model generates text.
    Writing,
    /// There is no model; the reason is shown.
    Failed,
}

/// The state of the generation. A text ends by itself, so its length is bounded.
#[derive(Clone, Debug, Default)]
pub struct GenerationState {
    /// The progress.
    pub stage: Stage,
    /// The iteration whose checkpoint was opened.
    pub iter: Option<u64>,
    /// The progress of the weights, the backend in use, or the error.
    pub said: String,
    /// The prompt and the generated text.
    pub text: String,
    /// The rate.
    pub rate: String,
    /// The reason why the text ended, or why the prompt was rejected.
    pub ended: String,
    /// The worker's translations, which this page does not fetch itself.
    texts: Table,
    /// The device and the hint about an error, which are shown together with the next message.
    device: String,
    hint: String,
}

impl GenerationState {
    /// Handles the start of a worker. The previous text remains until there is another.
    pub fn begin(&mut self) {
        let text = std::mem::take(&mut self.text);
        *self = Self { stage: Stage::Loading, text, ..Self::default() };
    }

    /// Applies a message from the worker.
    pub fn hear(&mut self, message: &str) {
        let Some(heard_message) = heard(message) else { return };
        match heard_message {
            WorkerMessage::Texts(packed) => self.texts = Table::unpacked(packed),
            WorkerMessage::Iteration(iter) => self.iter = Some(iter),
            WorkerMessage::Progress(hundredths) => self.said = self.say(&text::demo_loading(format!("{hundredths} %"))),
            WorkerMessage::Device(device) => device.clone_into(&mut self.device),
            WorkerMessage::Ready(is_webgpu, why) => {
                let device = self.device.as_str();
                let runs = match (is_webgpu, device) {
                    (true, "") => text::DEMO_ON_WEBGPU_UNNAMED.into(),
                    (true, _) => text::demo_on_webgpu(device),
                    (false, _) => text::demo_on_cpu(device),
                };
                self.said = format!("{}. {}", self.say(&runs), self.say_packed(why));
                // A checkpoint is opened to generate a text, which follows.
                self.write();
            }
            WorkerMessage::Began(prompt) => prompt.clone_into(&mut self.text),
            WorkerMessage::Adds(words) => self.text.push_str(words),
            WorkerMessage::Rate(tenths) => {
                let rate = match (tenths / 10, tenths % 10) {
                    (whole @ 0..10, tenths) => self.texts.number(&format!("{whole}.{tenths}")),
                    (whole, _) => self.texts.grouped(whole),
                };
                self.rate = self.say(&text::demo_rate(rate));
            }
            WorkerMessage::Ended(is_whole, n) => {
                let n = text::count(n);
                self.ended = self.say(&if is_whole { text::demo_ended(n) } else { text::demo_stopped(n) });
                self.stage = Stage::Ready;
            }
            WorkerMessage::Hint(hint) => {
                let hint = Text::unpacked(hint);
                self.hint = hint.map(|hint| self.say(&text::demo_hint(hint))).unwrap_or_default();
            }
            WorkerMessage::Refused(why) => {
                self.ended = self.say_packed(why);
                self.stage = Stage::Ready;
            }
            WorkerMessage::Unfetched(kind, words) => {
                let said = self.say(&unfetched(kind, words));
                self.fail(said);
            }
            WorkerMessage::Failed(why) => {
                let said = [self.say_packed(why), std::mem::take(&mut self.hint)].join(" ");
                self.fail(said);
            }
        }
    }

    fn say(&self, text: &Text) -> String {
        self.texts.say(text)
    }

    fn say_packed(&self, packed: &str) -> String {
        Text::unpacked(packed).map(|text| self.say(&text)).unwrap_or_default()
    }

    /// Handles the start of the generation.
    pub fn write(&mut self) {
        self.stage = Stage::Writing;
        self.rate.clear();
        self.ended.clear();
    }

    /// Handles the end of the worker, with the browser's reason.
    pub fn died(&mut self, reason: String) {
        self.fail(say(&text::rig_writes_died(reason)));
    }

    fn fail(&mut self, said: String) {
        (self.stage, self.said) = (Stage::Failed, said);
        self.rate.clear();
    }

    /// Returns whether a checkpoint is newer than the open one.
    pub fn is_older_than(&self, iter: u64) -> bool {
        self.iter.is_some_and(|open| open < iter) && matches!(self.stage, Stage::Ready | Stage::Writing)
    }
}

/// The reason why a checkpoint did not arrive, by the error kinds of `web/demo/remote.js`.
fn unfetched(kind: &str, words: &str) -> Text {
    match kind {
        "replaced" => text::WRITES_REPLACED.into(),
        "refused" => text::writes_refused(words),
        "broken" => text::writes_broken(words),
        "no-parts" => text::WRITES_NO_PARTS.into(),
        _ => text::WRITES_NOT_WHOLE.into(),
    }
}

/// The time of a checkpoint, in words. Its number is nanoGPT's `iter_num`, the next iteration: a run's last checkpoint
/// has one more than the last iteration.
pub fn made(iter: u64, max_iters: Option<u64>) -> String {
    match max_iters {
        Some(max_iters) if iter > max_iters => t(text::RIG_CHECKPOINT_LAST).to_owned(),
        _ => say(&text::rig_checkpoint_before(format::grouped(iter))),
    }
}

/// The bytes to fetch from a checkpoint of that length: the weights, beside which the file holds two moments of the
/// optimizer.
pub const fn weights_bytes(file_bytes: u64) -> u64 {
    file_bytes / 3
}

#[cfg(test)]
mod tests {
    use headroom_text::LANGUAGES;

    use super::*;

    /// A page whose worker has sent its translations.
    fn begun(language: usize) -> GenerationState {
        let mut writes = GenerationState::default();
        writes.begin();
        writes.hear(&format!("t{}", headroom_languages::packed(&LANGUAGES[language], "writes")));
        writes
    }

    fn hear_all(writes: &mut GenerationState, messages: &[&str]) {
        messages.iter().for_each(|message| writes.hear(message));
    }

    #[test]
    fn a_text_is_put_together_and_the_next_takes_its_place() {
        let mut writes = begun(0);
        assert_eq!(writes.stage, Stage::Loading);
        hear_all(&mut writes, &["i250", "p50"]);
        assert_eq!((writes.iter, writes.said.as_str()), (Some(250), "Loading weights, 50 %"));
        let ready = format!("c{}", Text::from(text::NO_WEBGPU).packed());
        hear_all(&mut writes, &["dsimd128", &ready, "bOnce", "a upon", "a a"]);
        assert_eq!((writes.stage, writes.text.as_str()), (Stage::Writing, "Once upon a"));
        assert!(
            writes.said.starts_with("CPU in WebAssembly, simd128. This browser does not support WebGPU"),
            "{}",
            writes.said
        );
        hear_all(&mut writes, &["s45", "s20005", "l2"]);
        assert_eq!((writes.stage, writes.rate.as_str()), (Stage::Ready, "2,000 tokens/s"));
        assert_eq!(writes.ended, "Stopped at the limit of 2 tokens.");
        writes.write();
        hear_all(&mut writes, &["bThen", "s45"]);
        assert_eq!((writes.text.as_str(), writes.rate.as_str(), writes.ended.as_str()), ("Then", "4.5 tokens/s", ""));
        writes.hear("{}");
        assert_eq!(writes.text, "Then", "an unknown message changes nothing");
    }

    #[test]
    fn failure_is_reported_in_every_language() {
        for (language, _) in LANGUAGES.iter().enumerate() {
            let mut writes = begun(language);
            hear_all(&mut writes, &["i250", "dAdapter", &format!("g{}", Text::from(text::WHY_GPU).packed())]);
            writes.hear(&format!("q{}", text::demo_unknown_char("'é'", "abc").packed()));
            assert!(writes.stage == Stage::Ready && writes.ended.contains('é'), "{}", writes.ended);
            writes.hear(&format!("h{}", Text::from(text::NO_WEBGPU_ADAPTER).packed()));
            writes.hear(&format!("f{}", text::demo_sentence("gone").packed()));
            assert!(writes.stage == Stage::Failed && writes.said.contains("gone"), "{}", writes.said);
            let mut said: Vec<String> = Vec::new();
            for kind in ["replaced", "refused", "broken", "no-parts", "not-whole"] {
                writes.hear(&format!("x{kind} no way"));
                let has_words = ["refused", "broken"].contains(&kind);
                assert_eq!(writes.said.contains("no way"), has_words, "{}", writes.said);
                assert!(!writes.said.contains('\u{fffd}') && !said.contains(&writes.said), "{}", writes.said);
                said.push(writes.said.clone());
            }
            assert!(!writes.is_older_than(500), "a failed download restarts with the newest checkpoint");
            for said in [&writes.said, &writes.ended] {
                assert!(!said.contains('\u{fffd}'), "{said}");
            }
            writes.begin();
            assert_eq!((writes.iter, writes.said.as_str()), (None, ""));
        }
        let mut writes = begun(0);
        writes.died("out of memory".to_owned());
        assert!(writes.stage == Stage::Failed && writes.said.contains("out of memory"), "{}", writes.said);
    }

    #[test]
    fn a_checkpoint_s_number_is_of_the_iteration_that_comes_next() {
        for (iter, max_iters, words) in [
            (0, None, "saved before iteration 0"),
            (250, Some(5000), "saved before iteration 250"),
            (60, Some(60), "saved before iteration 60"),
            (61, Some(60), "saved after the last iteration"),
            (5001, None, "saved before iteration 5,001"),
        ] {
            assert_eq!(made(iter, max_iters), words);
        }
    }

    #[test]
    fn a_newer_checkpoint_is_offered_once_one_is_open() {
        let mut writes = begun(0);
        assert!(!writes.is_older_than(500));
        hear_all(&mut writes, &["i250", "d", "g"]);
        assert!(writes.is_older_than(500) && !writes.is_older_than(250));
    }
}
