//! Manual steps for changes without a nanoGPT key: lines of code, or an environment variable.

use super::{Change, RunSwitch};

/// Manual step of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByHand {
    /// Lines of Python; a comment in them names their place.
    Code(&'static str),
    /// An environment variable; see [`Change::environment`].
    Variable,
    /// Closing other programs.
    Close,
}

const DEL_EVAL_LOGITS: &str = "\
# train.py, estimate_loss: the last line of its inner loop
del logits, loss";

const CHUNKED_LOSS: &str = "\
# model.py, GPT.forward: in the place of logits and loss under `if targets is not None`
from torch.utils.checkpoint import checkpoint
def chunk_loss(x, y):
    return F.cross_entropy(self.lm_head(x), y, ignore_index=-1, reduction='sum')
y = targets.view(-1)
chunks = zip(x.view(y.numel(), -1).split(4096), y.split(4096))
loss = sum(checkpoint(chunk_loss, *chunk, use_reentrant=False) for chunk in chunks)
loss = loss / (y != -1).sum()
logits = None";

const ACTIVATION_CHECKPOINTING: &str = "\
# model.py, GPT.forward: in the place of the loop over the blocks
from torch.utils.checkpoint import checkpoint
for block in self.transformer.h:
    x = checkpoint(block, x, use_reentrant=False) if self.training else block(x)";

const FLASH_ATTENTION: &str = "\
# model.py takes it by itself (self.flash) with PyTorch 2.0 or later
pip install --upgrade torch";

const EVAL_BATCH_SIZE: &str = "\
# train.py: a second argument of get_batch, in the place of batch_size inside it
def get_batch(split, batch_size=batch_size):
# train.py, estimate_loss
X, Y = get_batch(split, eval_batch_size)";

impl Change {
    /// The manual step of the change; `None` if the change needs none, as for a config key.
    #[must_use]
    pub fn by_hand(&self) -> Option<ByHand> {
        Some(match self {
            Self::Key("eval_batch_size", _) => ByHand::Code(EVAL_BATCH_SIZE),
            Self::Key(..) => return None,
            Self::Switch(RunSwitch::DelEvalLogits) => ByHand::Code(DEL_EVAL_LOGITS),
            Self::Switch(RunSwitch::ChunkedLoss) => ByHand::Code(CHUNKED_LOSS),
            Self::Switch(RunSwitch::ActivationCheckpointing) => ByHand::Code(ACTIVATION_CHECKPOINTING),
            Self::Switch(RunSwitch::FlashAttention) => ByHand::Code(FLASH_ATTENTION),
            Self::Switch(RunSwitch::Optimizer(optimizer)) => ByHand::Code(optimizer.spec().code.as_ref()?.by_hand),
            Self::Switch(RunSwitch::ExpandableSegments) => ByHand::Variable,
            Self::Switch(RunSwitch::NoOtherProcesses) => ByHand::Close,
        })
    }
}
