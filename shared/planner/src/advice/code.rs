//! Changes to nanoGPT's source code that a plan assumes, as a unified diff for `git apply` and `patch -p1`.
//!
//! No config key and no option of train.py makes these changes. A plan that relies on one of them is valid only after
//! the code change, so every answer names it.

use crate::{
    diff::Hunk,
    optimizer_spec::Optimizer,
    session::Options,
    train_config::{CrossEntropy, TrainConfig},
};
use headroom_text::{self as text, Key, Table, Text};

/// One change to nanoGPT's code, ordered by file and line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CodeChange {
    /// Each block recomputes its activations in backward.
    ActivationCheckpointing,
    /// The loss is computed for one chunk of tokens at a time.
    ChunkedLoss,
    /// The loss is computed by Liger's fused kernel.
    FusedLoss,
    /// The optimizer is another one than nanoGPT's.
    Optimizer(Optimizer),
    /// `estimate_loss` uses its own batch size.
    EvalBatchSize,
    /// `estimate_loss` deletes its logits after each batch.
    DelEvalLogits,
    /// The training loop deletes its logits after each backward.
    DelTrainLogits,
}

const MODEL: &str = "model.py";
const TRAIN: &str = "train.py";

const CHECKPOINTING: Hunk = Hunk {
    line: 179,
    before: "        x = self.transformer.drop(tok_emb + pos_emb)",
    body: &[
        "+        from torch.utils.checkpoint import checkpoint",
        "         for block in self.transformer.h:",
        "-            x = block(x)",
        "+            x = checkpoint(block, x, use_reentrant=False) if self.training else block(x)",
    ],
    after: "        x = self.transformer.ln_f(x)",
};

const LOSS_LINE: usize = 185;
const LOSS_BEFORE: &str = "            # if we are given some desired targets also calculate the loss";
const LOSS_AFTER: &str = "        else:";

const CHUNKED_LOSS: Hunk = Hunk {
    line: LOSS_LINE,
    before: LOSS_BEFORE,
    body: &[
        "-            logits = self.lm_head(x)",
        "-            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)",
        "+            from torch.utils.checkpoint import checkpoint",
        "+            def chunk_loss(x, y):",
        "+                return F.cross_entropy(self.lm_head(x), y, ignore_index=-1, reduction='sum')",
        "+            y = targets.view(-1)",
        "+            chunks = zip(x.view(y.numel(), -1).split(4096), y.split(4096))",
        "+            loss = sum(checkpoint(chunk_loss, *chunk, use_reentrant=False) for chunk in chunks)",
        "+            loss = loss / (y != -1).sum()",
        "+            logits = None",
    ],
    after: LOSS_AFTER,
};

const FUSED_LOSS: Hunk = Hunk {
    line: LOSS_LINE,
    before: LOSS_BEFORE,
    body: &[
        "-            logits = self.lm_head(x)",
        "-            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)",
        "+            from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss # pip install liger-kernel",
        "+            fused_loss = LigerFusedLinearCrossEntropyLoss(ignore_index=-1)",
        "+            loss = fused_loss(self.lm_head.weight, x.view(-1, x.size(-1)), targets.view(-1))",
        "+            logits = None",
    ],
    after: LOSS_AFTER,
};

const EVAL_BATCH_SIZE_KEY: Hunk = Hunk {
    line: 37,
    before: "log_interval = 1",
    body: &["+eval_batch_size = 12 # sequences in a batch of estimate_loss"],
    after: "eval_iters = 200",
};

const EVAL_BATCH_SIZE_PARAMETER: Hunk = Hunk {
    line: 115,
    before: "data_dir = os.path.join('data', dataset)",
    body: &["-def get_batch(split):", "+def get_batch(split, batch_size=batch_size):"],
    after: "    # We recreate np.memmap every batch to avoid a memory leak, as per",
};

const EVAL_BATCH_SIZE_USE: Hunk = Hunk {
    line: 221,
    before: "        for k in range(eval_iters):",
    body: &["-            X, Y = get_batch(split)", "+            X, Y = get_batch(split, eval_batch_size)"],
    after: "            with ctx:",
};

const DEL_EVAL_LOGITS: Hunk = Hunk {
    line: 225,
    before: "            losses[k] = loss.item()",
    body: &["+            del logits, loss"],
    after: "        out[split] = losses.mean()",
};

const DEL_TRAIN_LOGITS: Hunk = Hunk {
    line: 305,
    before: "        scaler.scale(loss).backward()",
    body: &["+        del logits"],
    after: "    # clip the gradient",
};

impl CodeChange {
    /// The changes that a run assumes, in the order of the files.
    #[must_use]
    pub fn needed_by(train: &TrainConfig) -> Vec<Self> {
        let has_eval_batch = train.eval_batch_size.is_some_and(|size| size != train.batch_size);
        let all = [
            (train.activation_checkpointing, Self::ActivationCheckpointing),
            (train.cross_entropy == CrossEntropy::Chunked, Self::ChunkedLoss),
            (train.cross_entropy == CrossEntropy::Fused, Self::FusedLoss),
            (train.optimizer.spec().code.is_some(), Self::Optimizer(train.optimizer)),
            (has_eval_batch, Self::EvalBatchSize),
            (train.del_eval_logits, Self::DelEvalLogits),
            (train.del_train_logits, Self::DelTrainLogits),
        ];
        all.into_iter().filter(|(is_needed, _)| *is_needed).map(|(_, change)| change).collect()
    }

    /// The file of nanoGPT that the change modifies.
    #[must_use]
    pub const fn file(self) -> &'static str {
        match self {
            Self::ActivationCheckpointing | Self::ChunkedLoss | Self::FusedLoss | Self::Optimizer(_) => MODEL,
            Self::EvalBatchSize | Self::DelEvalLogits | Self::DelTrainLogits => TRAIN,
        }
    }

    /// Name in documents.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::ActivationCheckpointing => "activation_checkpointing",
            Self::ChunkedLoss => "chunked_cross_entropy",
            Self::FusedLoss => "fused_cross_entropy",
            Self::Optimizer(optimizer) => optimizer.spec().id,
            Self::EvalBatchSize => "eval_batch_size",
            Self::DelEvalLogits => "del_eval_logits",
            Self::DelTrainLogits => "del_train_logits",
        }
    }

    /// Translation key of the name.
    #[must_use]
    pub const fn text(self) -> Key {
        match self {
            Self::ActivationCheckpointing => text::SWITCH_CHECKPOINTING,
            Self::ChunkedLoss => text::SWITCH_CHUNKED_LOSS,
            Self::FusedLoss => text::SWITCH_FUSED_LOSS,
            Self::Optimizer(optimizer) => optimizer.spec().label,
            Self::EvalBatchSize => text::SWITCH_EVAL_BATCH,
            Self::DelEvalLogits => text::SWITCH_DEL_EVAL_LOGITS,
            Self::DelTrainLogits => text::SWITCH_DEL_TRAIN_LOGITS,
        }
    }

    /// Resets the option that assumes the change. `EvalBatchSize` is a key of the config and remains.
    pub fn reset(self, options: &mut Options) {
        let default = Options::default();
        match self {
            Self::ActivationCheckpointing => options.activation_checkpointing = false,
            Self::ChunkedLoss | Self::FusedLoss => options.cross_entropy = default.cross_entropy,
            Self::Optimizer(_) => options.optimizer = default.optimizer,
            Self::EvalBatchSize => {}
            Self::DelEvalLogits => options.del_eval_logits = false,
            Self::DelTrainLogits => options.del_train_logits = false,
        }
    }

    const fn hunks(self) -> &'static [Hunk] {
        match self {
            Self::ActivationCheckpointing => &[CHECKPOINTING],
            Self::ChunkedLoss => &[CHUNKED_LOSS],
            Self::FusedLoss => &[FUSED_LOSS],
            Self::Optimizer(optimizer) => match &optimizer.spec().code {
                Some(code) => std::slice::from_ref(&code.hunk),
                None => &[],
            },
            Self::EvalBatchSize => &[EVAL_BATCH_SIZE_KEY, EVAL_BATCH_SIZE_PARAMETER, EVAL_BATCH_SIZE_USE],
            Self::DelEvalLogits => &[DEL_EVAL_LOGITS],
            Self::DelTrainLogits => &[DEL_TRAIN_LOGITS],
        }
    }
}

/// The modified files without duplicates.
#[must_use]
pub fn changed_files(changes: &[CodeChange]) -> Vec<&'static str> {
    [MODEL, TRAIN].into_iter().filter(|file| changes.iter().any(|change| change.file() == *file)).collect()
}

/// "1 change to model.py".
#[must_use]
pub fn changes_text(changes: &[CodeChange]) -> Text {
    text::changes_to(changes.len(), text::names(changed_files(changes)))
}

/// "needs 1 change to model.py: chunked cross-entropy", with the names translated by `table`.
#[must_use]
pub fn needs_text(changes: &[CodeChange], table: &Table) -> Text {
    text::needs(changes_text(changes), text::names(changes.iter().map(|change| table.word(change.text()))))
}

/// The changes as one unified diff against nanoGPT; empty if there are none.
#[must_use]
pub fn patch_of(changes: &[CodeChange]) -> String {
    let mut patch = String::new();
    for file in changed_files(changes) {
        patch.push_str(&format!("--- a/{file}\n+++ b/{file}\n"));
        let mut hunks: Vec<&Hunk> = Vec::new();
        for hunk in changes.iter().filter(|change| change.file() == file).flat_map(|change| change.hunks()) {
            let at = hunks.partition_point(|before| before.line <= hunk.line);
            hunks.insert(at, hunk);
        }
        let (mut removed, mut added) = (0, 0);
        for hunk in hunks {
            let count = |sign: char| hunk.body.iter().filter(|line| line.starts_with(sign)).count();
            let kept = 2 + count(' ');
            let (old, new) = (kept + count('-'), kept + count('+'));
            let line = hunk.line + added - removed;
            patch.push_str(&format!("@@ -{},{old} +{line},{new} @@\n {}\n", hunk.line, hunk.before));
            hunk.body.iter().for_each(|line| patch.push_str(&format!("{line}\n")));
            patch.push_str(&format!(" {}\n", hunk.after));
            removed += count('-');
            added += count('+');
        }
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{nanogpt::Source, session::resolve};

    fn needed(text: &str, change: impl FnOnce(&mut Options)) -> Vec<CodeChange> {
        let mut options = Options::default();
        change(&mut options);
        let source = Source::File { name: "config.py".to_owned(), text: text.to_owned() };
        CodeChange::needed_by(&resolve(&[source], &options).request.expect("a run").train)
    }

    #[test]
    fn stock_nanogpt_needs_no_change() {
        assert_eq!(needed("batch_size = 4\n", |_| {}), []);
        assert_eq!(needed("batch_size = 4\neval_batch_size = 4\n", |_| {}), []);
        assert_eq!(patch_of(&[]), "");
    }

    #[test]
    fn each_option_that_needs_code_is_named_and_reset() {
        let set = |options: &mut Options| {
            options.activation_checkpointing = true;
            options.cross_entropy = CrossEntropy::Fused;
            options.optimizer = Optimizer::Adamw8bit;
            options.del_eval_logits = true;
            options.del_train_logits = true;
        };
        let all = needed("eval_batch_size = 1\n", set);
        assert_eq!(all.len(), 6);
        assert_eq!(changed_files(&all), ["model.py", "train.py"]);
        let left = needed("", |options| {
            set(options);
            all.iter().for_each(|change| change.reset(options));
        });
        assert_eq!(left, []);
    }

    /// Lines of nanoGPT that the hunks need, each at the line number in the diff.
    fn file_for(patch: &str) -> Vec<String> {
        let mut lines: Vec<String> = (1..400).map(|line| format!("line {line}")).collect();
        let mut at = 0;
        for line in patch.lines().skip(2) {
            match line.as_bytes().first() {
                Some(b'@') => at = line[4..].split(',').next().expect("a line").parse::<usize>().expect("a number") - 1,
                Some(b' ' | b'-') => {
                    line[1..].clone_into(&mut lines[at]);
                    at += 1;
                }
                _ => {}
            }
        }
        lines
    }

    /// Applies a diff without any offset; panics if a line differs.
    fn applied(lines: &[String], patch: &str) -> Vec<String> {
        let (mut out, mut at) = (Vec::new(), 0);
        for line in patch.lines().skip(2) {
            let (sign, rest) = line.split_at(1);
            match sign {
                "@" => {
                    let mut starts = line.split([' ', ',']).filter(|word| word.starts_with(['-', '+']));
                    let mut start = || starts.next().and_then(|word| word[1..].parse::<usize>().ok()).expect("a line");
                    let (old, new) = (start() - 1, start() - 1);
                    out.extend_from_slice(&lines[at..old]);
                    assert_eq!(out.len(), new, "{line}");
                    at = old;
                }
                "+" => out.push(rest.to_owned()),
                _ => {
                    assert_eq!(lines[at], rest);
                    out.extend((sign == " ").then(|| rest.to_owned()));
                    at += 1;
                }
            }
        }
        out.extend_from_slice(&lines[at..]);
        out
    }

    #[test]
    fn a_patch_of_several_changes_applies_line_by_line() {
        use CodeChange::{
            ActivationCheckpointing, ChunkedLoss, DelEvalLogits, DelTrainLogits, EvalBatchSize, FusedLoss,
        };
        const ADAMW_8BIT: CodeChange = CodeChange::Optimizer(Optimizer::Adamw8bit);
        for changes in [
            &[ChunkedLoss][..],
            &[ActivationCheckpointing, ChunkedLoss, ADAMW_8BIT],
            &[ActivationCheckpointing, FusedLoss, ADAMW_8BIT],
            &[EvalBatchSize, DelEvalLogits, DelTrainLogits],
        ] {
            let patch = patch_of(changes);
            let before = file_for(&patch);
            let after = applied(&before, &patch);
            for line in patch.lines().skip(2).filter_map(|line| line.strip_prefix('+')) {
                assert!(after.iter().any(|other| other == line), "{line}");
            }
            let gone: Vec<_> = patch.lines().skip(2).filter_map(|line| line.strip_prefix('-')).collect();
            assert!(gone.iter().all(|line| !after.iter().any(|other| other == line)), "{after:?}");
        }
    }
}
