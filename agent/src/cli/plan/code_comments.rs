//! Headroom's own comments in config files. A fix that needs a change to nanoGPT's code leaves such a comment beside its
//! setting: `# headroom: fits L4, needs 1 change to model.py: chunked cross-entropy`. A plan reads no comments, so it
//! assumes nanoGPT's own code.

use headroom_languages::table;
use headroom_planner::{
    advice::{CodeChange, changes_text},
    nanogpt::Source,
    optimizer_spec::Optimizer,
    train_config::TrainConfig,
};
use headroom_text::{LANGUAGES, Text};

/// Beginning of such a comment, in every language.
const MARK: &str = "# headroom";

/// Changes that comments name, with the options of `headroom plan` that assume them. A config key expresses the
/// evaluation batch.
const OPTIONS: [(CodeChange, &str); 5] = [
    (CodeChange::ActivationCheckpointing, "--activation-checkpointing"),
    (CodeChange::ChunkedLoss, "--cross-entropy=chunked"),
    (CodeChange::FusedLoss, "--cross-entropy=fused"),
    (CodeChange::DelEvalLogits, "--del-eval-logits"),
    (CodeChange::DelTrainLogits, "--del-train-logits"),
];

/// All changes that comments name, with their options, in the order of the files.
fn options() -> impl Iterator<Item = (CodeChange, String)> {
    let optimizers = Optimizer::ALL.iter().filter(|optimizer| optimizer.spec().code.is_some());
    let optimizers = optimizers
        .map(|optimizer| (CodeChange::Optimizer(*optimizer), format!("--optimizer={}", optimizer.spec().name)));
    let mut options: Vec<_> = OPTIONS.iter().map(|(change, option)| (*change, (*option).to_owned())).collect();
    options.extend(optimizers);
    options.sort();
    options.into_iter()
}

/// Notes on the configs that were written for changed code that the plan does not assume, one per file.
pub fn notes(sources: &[Source], train: &TrainConfig) -> String {
    let planned = CodeChange::needed_by(train);
    let note = |source: &Source| {
        let Source::File { name, text } = source else { return None };
        // Most configs have none, and a search in each line of a long one takes a second.
        if !text.contains(MARK) {
            return None;
        }
        let missing: Vec<_> =
            options().filter(|(change, _)| !planned.contains(change) && is_named(text, *change)).collect();
        if missing.is_empty() {
            return None;
        }
        let changes: Vec<CodeChange> = missing.iter().map(|(change, _)| *change).collect();
        let names: Vec<String> = changes.iter().map(|change| Text::from(change.text()).to_string()).collect();
        let options: Vec<&str> = missing.iter().map(|(_, option)| &**option).collect();
        Some(format!(
            "{name}: written with {} ({}), which this plan does not assume\n\nhint: {} plans the changed code\n",
            changes_text(&changes),
            names.join(", "),
            options.join(" ")
        ))
    };
    let notes: Vec<String> = sources.iter().filter_map(note).collect();
    notes.join("\n")
}

/// Whether a comment of Headroom names a change, in any language.
fn is_named(text: &str, change: CodeChange) -> bool {
    let comments = text.lines().filter_map(|line| line.split_once(MARK)).map(|(_, comment)| comment);
    comments
        .filter(|comment| comment.contains(change.file()))
        .any(|comment| LANGUAGES.iter().any(|language| comment.contains(table(language.code).word(change.text()))))
}
