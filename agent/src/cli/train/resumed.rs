//! Checks of a resumed run: its data must have the checkpoint's tokens, and no newer checkpoint is hidden silently.

use std::path::Path;

use headroom_kernels::weights::Tokenizer;

use super::{Error, error::OtherTokens};
use crate::cli::print;
use headroom_train::{
    checkpoint::{self, Meta},
    resume::is_same_dataset,
    settings::RunSettings,
};

/// Name of the data set that a checkpoint was trained on.
fn dataset_of(meta: &Meta) -> Option<&str> {
    meta.config.get("dataset").and_then(|name| name.as_str())
}

/// Checks that the data of a resumed run has the checkpoint's tokens, if both are known.
///
/// # Errors
/// [`Error::OtherTokens`].
pub fn check_tokens(run: &RunSettings, meta: &Meta, tokenizer: Option<&Tokenizer>) -> Result<(), Error> {
    if let (Some(checkpoint), Some(data)) = (&meta.tokenizer, tokenizer)
        && checkpoint != data
    {
        return Err(Error::OtherTokens(Box::new(OtherTokens {
            out_dir: run.out_dir.clone(),
            dataset: run.dataset.clone(),
            data: described(data),
            of_checkpoint: dataset_of(meta).map(str::to_owned),
            checkpoint: described(checkpoint),
        })));
    }
    Ok(())
}

/// Returns the data set of the checkpoint if a resumed run has another one. Their losses cannot be compared.
pub fn other_dataset<'a>(run: &RunSettings, meta: &'a Meta) -> Option<&'a str> {
    dataset_of(meta).filter(|name| !is_same_dataset(Path::new("."), name, &run.dataset))
}

/// Warns that a resumed run has another data set than its checkpoint.
pub fn warn_of_other_dataset(run: &RunSettings, other: &str) {
    print::error(&format!(
        "warning: the checkpoint in {} was trained on {other}, and this run continues on {}: its best loss starts anew, \
         and its checkpoints replace those of {other}.\n",
        run.out_dir.display(),
        run.dataset
    ));
}

/// Describes a tokenizer, with the first characters of a vocabulary.
fn described(tokenizer: &Tokenizer) -> String {
    match tokenizer {
        Tokenizer::Gpt2 => "GPT-2's tokens".to_owned(),
        Tokenizer::Char(vocab) => {
            let first: String = vocab.chars().filter(|char| !char.is_whitespace()).take(8).collect();
            format!("{} characters ({first:?}…)", vocab.chars().count())
        }
    }
}

/// Warns of nanoGPT's checkpoint in the directory that has more iterations than the one to resume.
pub fn warn_of_newer(dir: &Path, meta: &Meta) {
    let (Some(ours), Some(newer)) = (checkpoint::find(dir), checkpoint::of_nanogpt(dir)) else { return };
    let Ok(theirs) = checkpoint::load_meta(&newer) else { return };
    let (iter, newer_iter) = (meta.state.iter_num, theirs.state.iter_num);
    if newer_iter > iter {
        let (ours, newer) = (ours.display(), newer.display());
        print::error(&format!(
            "warning: the run resumes from {ours} at iteration {iter}, and {newer} of nanoGPT is at iteration \
             {newer_iter}; to resume from that one, move {ours} to another folder.\n"
        ));
    }
}
