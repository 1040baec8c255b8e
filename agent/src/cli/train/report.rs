//! What `headroom train` says: before it starts, of every event, and at its end.

use std::{path::Path, time::Duration};

use headroom_kernels::weights::Note;
use headroom_shared::{
    nanogpt::Value,
    text::{self, Text},
    units::{GIB, MIB},
};
use serde_json::{Value as Json, json};

use super::{options::Request, planned, start::Start};
use crate::{
    cli::plan::options::Given,
    data::dataset::{Dataset, Split},
    train::{
        run::{Event, NOT_SAVED, OnSaveError, Step},
        settings::RunSettings,
    },
};

/// What is about to be trained.
pub fn start(start: &Start) -> String {
    let Start { gpt, run, dataset, engine, disk, .. } = start;
    let shape = gpt.shape();
    let tokens = run.batch_size * run.gradient_accumulation_steps * shape.block_size;
    format!(
        "A GPT of {} parameters: {} layers, {} heads, {} wide, {} tokens of {} at a time.\n\
         Data: {}, {} tokens to learn from and {} to be judged by; {tokens} an iteration, {} iterations.\n\
         On {}. Checkpoints go to {}.\n{}{}",
        gpt.n_parameters().unwrap_or_default(),
        shape.n_layer,
        shape.n_head,
        shape.n_embd,
        shape.block_size,
        shape.vocab_size,
        dataset.folder().display(),
        dataset.n_tokens(Split::Train),
        dataset.n_tokens(Split::Val),
        run.max_iters,
        planned::engine(engine),
        run.out_dir.display(),
        planned::words(engine),
        planned::disk(&run.out_dir, *disk),
    )
}

/// Which weights a run starts from, and what is to be known of them.
pub fn weights(path: &Path, notes: &[Note]) -> String {
    let notes: String = notes.iter().map(|note| format!("  {note}\n")).collect();
    format!("Weights: {}\n{notes}", path.display())
}

/// A line of an event: nanoGPT's words, so that what reads its logs reads these, and what it has not after them.
pub fn event(event: &Event, run: &RunSettings, is_json: bool) -> String {
    if is_json {
        return format!("{}\n", json_event(event));
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

fn json_event(event: &Event) -> Json {
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
        Event::Saved { iter, bytes } => json!({ "iter": iter, "saved_bytes": bytes }),
        Event::NotSaved { iter, why } => json!({ "iter": iter, "not_saved": why }),
    }
}

/// A span of time in its largest units.
fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, s) => format!("{m} min {s:02} s"),
        (0, h, m, _) => format!("{h} h {m:02} min"),
        (d, h, ..) => format!("{d} d {h} h"),
    }
}

/// What is said at the end where there is no checkpoint, as after an evaluation alone.
pub const DONE_UNSAVED: &str = "Done, and nothing was saved.\n";

/// A word that stories begin with.
const PROMPT: &str = "Once";

/// Where the best checkpoint is, and which one commands take.
pub fn best(best: &Path) -> String {
    format!(
        "The checkpoint with the lowest validation loss is {}.\n\
         `sample` and `export` take it; with --which last they take the last one.\n",
        best.display()
    )
}

/// What to do with what was learnt and saved. `kept` is the best checkpoint, where that is another one than the last.
pub fn done(run: &RunSettings, dataset: &Dataset, kept: Option<&Path>) -> String {
    let dir = quoted(&run.out_dir.display().to_string());
    // Not every data set has its characters.
    let is_known = dataset.tokenizer().is_ok_and(|tokenizer| tokenizer.encode(PROMPT).is_ok());
    let prompt = if is_known { format!(" --prompt \"{PROMPT}\"") } else { String::new() };
    let best = kept.map(best).unwrap_or_default();
    format!("{best}Done. Let it write:\n  headroom sample --ckpt {dir}{prompt}\n")
}

/// That it was stopped and left nothing new, with the iteration of the checkpoint that there is.
pub fn not_saved(kept: Option<u64>) -> Text {
    kept.map_or_else(|| text::STOPPED_UNSAVED_NONE.into(), text::stopped_unsaved)
}

/// The command that resumes a run: the one that started it, with `--init_from=resume`. A run that `is_moved` saves to
/// another folder than its keys say.
pub fn resume_command(request: &Request, run: &RunSettings, is_moved: bool) -> String {
    let given = &request.given;
    let words = given.iter().filter_map(|given| match given {
        Given::Config(path) => Some(quoted(&path.to_string_lossy())),
        Given::Setting(text) if text.trim_start_matches('-').starts_with("init_from=") => None,
        Given::Setting(text) => Some(quoted(text)),
    });
    let mut words: Vec<String> = words.collect();
    // A config file says where; the built-in one is not read again.
    let says_where = |given: &Given| match given {
        Given::Config(_) => true,
        Given::Setting(text) => text.trim_start_matches('-').starts_with("out_dir="),
    };
    if is_moved || !given.iter().any(says_where) {
        words.push(quoted(&format!("--out_dir={}", run.out_dir.display())));
    }
    words.push("--init_from=resume".to_owned());
    words.extend(options(request));
    format!("headroom train {}", words.join(" "))
}

/// The options that a run was started with, but for what is so where none is given.
fn options(request: &Request) -> Vec<String> {
    let Request { threads, vram_bytes, recompute, attender, save_every, on_save_error, json, .. } = request;
    let stops = *on_save_error == OnSaveError::Stop;
    let options = [
        threads.map(|threads| format!("--threads={threads}")),
        vram_bytes.map(|bytes| format!("--vram={}", exact_size(bytes))),
        recompute.map(|level| format!("--recompute={}", level.name())),
        attender.map(|attender| format!("--attention={}", attender.name())),
        save_every.map(|every| format!("--save-every={}s", every.as_secs())),
        stops.then(|| "--on-save-error=stop".to_owned()),
        json.then(|| "--json".to_owned()),
    ];
    options.into_iter().flatten().collect()
}

/// A size as options take it, to the byte.
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

/// A checkpoint's value as a config has it; none of what no key of nanoGPT is.
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
    fn the_command_that_goes_on_is_the_one_that_started() {
        let of = |words: &[&str]| {
            let mut request = Request::default();
            let words = words.iter().map(Into::into);
            parse("train", FLAGS, words, &mut request, take_word).expect("they are understood");
            request
        };
        let mut settings = headroom_shared::nanogpt::read(&[]);
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
        // Each option that is in the table, but for --plan, which trains nothing, and --force, which starts anew.
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
