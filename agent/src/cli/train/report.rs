//! Messages of `headroom train`: before the start, for each event, and at the end.

use std::{path::Path, time::Duration};

use headroom_kernels::weights::Note;
use headroom_planner::nanogpt::Value;
use headroom_text::{
    self as text, Text,
    units::{GIB, MIB},
};
use serde_json::{Value as Json, json};

use super::{LISTED_MAX, options::Request};
use crate::cli::plan::options::NanogptArgument;
use headroom_train::{
    data::dataset::Dataset,
    resume::Candidate,
    run::{Event, NOT_SAVED, OnSaveError, Step},
    settings::RunSettings,
};

/// Note on the automatically resumed run, and the other `runs` that could be resumed.
pub fn resumes(chosen: &Candidate, runs: &[Candidate]) -> String {
    let others: Vec<&str> =
        runs.iter().filter(|run| *run != chosen).map(|run| run.out_dir.as_str()).take(LISTED_MAX).collect();
    let others = if others.is_empty() {
        String::new()
    } else {
        format!(" --out_dir= resumes another run: {}.", others.join(", "))
    };
    format!("Resuming the run in {} ({}).{others}\n", chosen.out_dir, candidate(chosen))
}

/// Data set and iteration of a run.
pub fn candidate(run: &Candidate) -> String {
    match (&run.dataset, run.iter_num) {
        (Some(dataset), Some(iter_num)) => format!("{dataset}, iteration {iter_num}"),
        _ => "its checkpoint cannot be read".to_owned(),
    }
}

/// Path of the initial weights, with notes.
pub fn weights(path: &Path, notes: &[Note]) -> String {
    let notes: String = notes.iter().map(|note| format!("  {note}\n")).collect();
    format!("Weights: {}\n{notes}", path.display())
}

/// Line for an event. It begins with nanoGPT's wording, so that log parsers accept it, and ends with additional
/// figures.
pub fn event(event: &Event, run: &RunSettings, is_json: bool) -> String {
    if is_json {
        return format!("{}\n", json_event(event, run));
    }
    match event {
        Event::Evaluating { done, of, .. } => format!("evaluating: {done} of {of} batches\n"),
        Event::Evaluated { iter, train_loss, val_loss, .. } => {
            format!("step {iter}: train loss {train_loss:.4}, val loss {val_loss:.4}\n")
        }
        Event::Stepped(step) => {
            let Step { iter, loss, learning_rate, gradient_norm, time, tokens_per_second, mfu, time_left } = step;
            let mfu = mfu.map_or_else(String::new, |mfu| format!(", mfu {:.2}%", mfu * 100.0));
            format!(
                "iter {iter}: loss {loss:.4}, time {:.2}ms{mfu}, {tokens_per_second:.0} tokens/s, \
                 lr {learning_rate:.3e}, norm {gradient_norm:.4}, {} left\n",
                time.as_secs_f64() * 1e3,
                span(*time_left)
            )
        }
        Event::Saved { .. } => format!("saving checkpoint to {}\n", run.out_dir.display()),
        Event::NotSaved { iter, why } => format!("{NOT_SAVED}{iter}: {why}\n"),
    }
}

fn json_event(event: &Event, run: &RunSettings) -> Json {
    match event {
        Event::Evaluating { iter, done, of } => json!({ "iter": iter, "evaluated_batches": done, "of_batches": of }),
        Event::Evaluated { iter, train_loss, val_loss, learning_rate } => {
            json!({ "iter": iter, "train_loss": train_loss, "val_loss": val_loss, "lr": learning_rate })
        }
        Event::Stepped(step) => json!({
            "iter": step.iter,
            "loss": step.loss,
            "lr": step.learning_rate,
            "gradient_norm": step.gradient_norm,
            "time_ms": step.time.as_secs_f64() * 1e3,
            "tokens_per_second": step.tokens_per_second,
            "mfu": step.mfu,
            "time_left_s": step.time_left.as_secs(),
        }),
        Event::Saved { iter, bytes } => {
            json!({ "iter": iter, "saved_bytes": bytes, "folder": run.out_dir.display().to_string() })
        }
        Event::NotSaved { iter, why } => json!({ "iter": iter, "not_saved": why.to_string() }),
    }
}

/// A duration in its largest units.
fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, s) => format!("{m} min {s:02} s"),
        (0, h, m, _) => format!("{h} h {m:02} min"),
        (d, h, ..) => format!("{d} d {h} h"),
    }
}

/// Message at the end of a run without a checkpoint, such as an evaluation alone.
pub const DONE_UNSAVED: &str = "Done, and nothing was saved.\n";

/// Typical first word of a story.
const PROMPT: &str = "Once";

/// Path of the best checkpoint, and which checkpoint other commands use.
pub fn best(best: &Path) -> String {
    format!(
        "The checkpoint with the lowest validation loss is {}.\n\
         `sample` and `export` use it; --which last selects the last one.\n",
        best.display()
    )
}

/// Suggestion for using the model. `kept` is the best checkpoint, if it is not the last one.
pub fn done(run: &RunSettings, dataset: &Dataset, kept: Option<&Path>) -> String {
    let dir = quoted(&run.out_dir.display().to_string());
    // Some data sets lack the prompt's characters.
    let is_known = dataset.tokenizer().is_ok_and(|tokenizer| tokenizer.encode(PROMPT).is_ok());
    let prompt = if is_known { format!(" --prompt \"{PROMPT}\"") } else { String::new() };
    let best = kept.map(best).unwrap_or_default();
    format!("{best}Training complete. Generate text with:\n  headroom sample --ckpt {dir}{prompt}\n")
}

/// Message for a stopped run that saved nothing new, with the iteration of the existing checkpoint.
pub fn not_saved(kept: Option<u64>) -> Text {
    kept.map_or_else(|| text::STOPPED_UNSAVED_NONE.into(), text::stopped_unsaved)
}

/// Command that resumes a run: its original command with `--init_from=resume`. A run that `is_moved` saves to another
/// directory than its keys name.
pub fn resume_command(request: &Request, run: &RunSettings, is_moved: bool) -> String {
    let given = &request.given;
    let words = given.iter().filter_map(|given| match given {
        NanogptArgument::Config(path) => Some(quoted(&path.to_string_lossy())),
        NanogptArgument::Setting(text) if text.trim_start_matches('-').starts_with("init_from=") => None,
        NanogptArgument::Setting(text) => Some(quoted(text)),
    });
    let mut words: Vec<String> = words.collect();
    // A config file names the directory; the built-in config is not read again.
    let says_where = |given: &NanogptArgument| match given {
        NanogptArgument::Config(_) => true,
        NanogptArgument::Setting(text) => text.trim_start_matches('-').starts_with("out_dir="),
    };
    if is_moved || !given.iter().any(says_where) {
        words.push(quoted(&format!("--out_dir={}", run.out_dir.display())));
    }
    words.push("--init_from=resume".to_owned());
    words.extend(options(request));
    format!("headroom train {}", words.join(" "))
}

/// Options of the run that differ from their defaults.
fn options(request: &Request) -> Vec<String> {
    let Request { threads, vram_bytes, recompute, attention_backend, save_every, on_save_error, json, .. } = request;
    let stops = *on_save_error == OnSaveError::Stop;
    let options = [
        threads.map(|threads| format!("--threads={threads}")),
        vram_bytes.map(|bytes| format!("--vram={}", exact_size(bytes))),
        recompute.map(|level| format!("--recompute={}", level.name())),
        attention_backend.map(|attention_backend| format!("--attention={}", attention_backend.name())),
        save_every.map(|every| format!("--save-every={}s", every.as_secs())),
        stops.then(|| "--on-save-error=stop".to_owned()),
        json.then(|| "--json".to_owned()),
    ];
    options.into_iter().flatten().collect()
}

/// A size as accepted by options, exact to the byte.
fn exact_size(bytes: u64) -> String {
    let units = [(GIB, "GiB"), (MIB, "MiB"), (1, "B")];
    let unit = units.into_iter().find(|(unit, _)| bytes.is_multiple_of(*unit));
    unit.map_or_else(String::new, |(unit, name)| format!("{}{name}", bytes / unit))
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// A checkpoint's value as written in a config. `None` for JSON types that nanoGPT's keys do not have.
pub fn python(value: &Json) -> Option<Value> {
    Some(match value {
        Json::Bool(truth) => Value::Bool(*truth),
        Json::Number(number) => number.as_i64().map(Value::Int).or_else(|| number.as_f64().map(Value::Float))?,
        Json::String(text) => Value::Str(text.clone()),
        Json::Null | Json::Array(_) | Json::Object(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{
        args::parse,
        train::options::{FLAGS, take_word},
    };

    #[test]
    fn spans_have_two_units() {
        for (seconds, want) in [(0, "0 s"), (61, "1 min 01 s"), (3661, "1 h 01 min"), (90_000, "1 d 1 h")] {
            assert_eq!(span(Duration::from_secs(seconds)), want);
        }
    }

    #[test]
    fn resume_command_equals_start_command() {
        let of = |words: &[&str]| {
            let mut request = Request::default();
            let words = words.iter().map(Into::into);
            parse("train", FLAGS, words, &mut request, take_word).expect("they are parsed");
            request
        };
        let mut settings = headroom_planner::nanogpt::read(&[]);
        let run = RunSettings::read(&mut settings).expect("the defaults");
        let run = RunSettings { out_dir: "out-stories".into(), ..run };
        let again = |words: &[&str]| resume_command(&of(words), &run, false);
        assert_eq!(again(&[]), "headroom train --out_dir=out-stories --init_from=resume");
        assert_eq!(
            again(&["my config.py", "--init_from=scratch", "--out_dir=it's"]),
            r"headroom train 'my config.py' '--out_dir=it'\''s' --init_from=resume"
        );
        let moved = resume_command(&of(&["my.py"]), &run, true);
        assert_eq!(moved, "headroom train my.py --out_dir=out-stories --init_from=resume");
        // All options of the table except --plan, which trains nothing, and --force, which starts from scratch.
        let options = [
            "--threads=2",
            "--vram=11.69GiB",
            "--recompute=gelu",
            "--attention=cudnn",
            "--save-every=600s",
            "--on-save-error=stop",
            "--json",
        ];
        assert_eq!(options.len() + 2, FLAGS.len());
        let command = again(&options);
        let words: Vec<&str> = command.split(' ').skip(2).collect();
        let request = of(&words);
        assert_eq!(request.given.len(), 2, "{command}");
        let request = Request { given: vec![], ..request };
        assert_eq!(format!("{request:?}"), format!("{:?}", of(&options)), "{command}");
        assert!(again(&["--vram=8GiB"]).ends_with(" --init_from=resume --vram=8GiB"));
    }
}
