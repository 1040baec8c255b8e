//! The run of a trainer in a text with anything else, such as a log with a traceback.

use super::{
    input::{Input, Trainer},
    nanochat::launch::{LaunchError, of_text},
    presets,
};
use crate::nanogpt::commands;

/// Options with the name of the model.
const MODEL_KEYS: [&str; 2] = ["--model_name_or_path", "--model_name"];

/// Maximum length of a command in bytes.
const MAX_COMMAND_BYTES: usize = 16 * 1024;

/// Returns the run of the first command or log of a trainer in a text. `None` without one.
///
/// # Errors
/// The text has a command or a log of a run that Headroom does not plan.
#[must_use]
pub fn input_in(text: &str) -> Option<Result<Input, LaunchError>> {
    match of_text(text) {
        Ok(launch) => Some(Ok(Input::of_words(Trainer::Nanochat, &launch.options, String::new()))),
        Err(LaunchError::NoRun) => hf_in(text).map(Ok),
        Err(error) => Some(Err(error)),
    }
}

/// The run of a command that names one of the known models.
fn hf_in(text: &str) -> Option<Input> {
    let at = text.find(MODEL_KEYS[1])?;
    let start = command_start(text, at);
    let mut end = text.len().min(start + MAX_COMMAND_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let words = commands(text.get(start..end)?).0.into_iter().find(|words| model_of(words).is_some())?;
    let preset = presets::find(&model_of(&words)?)?;
    let options = words.iter().position(|word| word.starts_with("--")).map_or(&[][..], |first| &words[first..]);
    Some(Input::of_words(Trainer::Hf, options, preset.config().to_string()))
}

/// The start of the command that contains `at`: that of its line, or of the first of the lines that a backslash joins.
fn command_start(text: &str, at: usize) -> usize {
    let line_start = |at: usize| text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let mut start = line_start(at);
    while start > 0 && text[..start].trim_end().ends_with('\\') && at - start < MAX_COMMAND_BYTES {
        start = line_start(start - 1);
    }
    start
}

fn model_of(words: &[String]) -> Option<String> {
    words.iter().enumerate().find_map(|(at, word)| match word.split_once('=') {
        Some((key, value)) if MODEL_KEYS.contains(&key) => Some(value.to_owned()),
        None if MODEL_KEYS.contains(&word.as_str()) => words.get(at + 1).cloned(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trainers::{Run, input::InputError};

    fn run_in(text: &str) -> Option<Result<Run, InputError>> {
        Some(input_in(text)?.map_err(InputError::from).and_then(|input| input.read()))
    }

    #[test]
    fn a_command_in_a_text_is_a_run() {
        let text = "$ accelerate launch sft.py \\\n  --model_name_or_path Qwen/Qwen2.5-0.5B \\\n  --bf16 --lora_r=8\n\
                    Traceback (most recent call last):\n  File \"sft.py\", line 3, in main\n";
        let run = run_in(text).expect("a command").expect("a run");
        assert_eq!((run.trainer(), &run.config()["lora_r"]), ("hf", &8.into()));
        let error = run_in("python sft.py --model_name_or_path=Qwen3-0.6B --use_peft").expect("a command");
        assert!(error.expect_err("an unknown option").to_string().contains("--use_peft"));
        for text in ["", "--model_name", "python sft.py --model_name_or_path my/model", "see --model_name_or_path\n"] {
            assert_eq!(run_in(text), None, "{text}");
        }
    }

    #[test]
    fn a_command_of_nanochat_is_a_run() {
        let run = run_in("root$ python -m scripts.base_train --compile=False --depth=4\nTraceback").expect("a command");
        assert_eq!(run.expect("a run").config()["depth"], 4);
        let error = run_in("torchrun --nproc_per_node=8 -m scripts.base_train").expect("a command");
        assert!(error.expect_err("eight processes").to_string().contains("8 processes"));
    }
}
