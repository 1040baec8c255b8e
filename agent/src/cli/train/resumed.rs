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

/// Checks the data of a resumed run. Returns whether it is another data set than the checkpoint's, with the same
/// tokens. Its losses cannot be compared then, of which it warns.
///
/// # Errors
/// [`Error::OtherTokens`].
pub fn is_other_data(run: &RunSettings, meta: &Meta, tokenizer: Option<&Tokenizer>) -> Result<bool, Error> {
    let of_checkpoint = meta.config.get("dataset").and_then(|name| name.as_str());
    let dataset = &run.dataset;
    if let (Some(checkpoint), Some(data)) = (&meta.tokenizer, tokenizer)
        && checkpoint != data
    {
        return Err(Error::OtherTokens(Box::new(OtherTokens {
            out_dir: run.out_dir.clone(),
            dataset: dataset.clone(),
            data: described(data),
            of_checkpoint: of_checkpoint.map(str::to_owned),
            checkpoint: described(checkpoint),
        })));
    }
    let Some(other) = of_checkpoint.filter(|name| !is_same_dataset(Path::new("."), name, dataset)) else {
        return Ok(false);
    };
    print::error(&format!(
        "warning: the checkpoint in {} was trained on {other}, and this run continues on {dataset}: its best loss starts \
         anew, and its checkpoints replace those of {other}.\n",
        run.out_dir.display()
    ));
    Ok(true)
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
