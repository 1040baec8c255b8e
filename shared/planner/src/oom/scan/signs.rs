//! Table of the known phrases, squeezed, and the filter that finds them.

use super::found::{Frame, MessageForm, Sign};
use crate::oom::message::NotOom;

/// Every phrase and its meaning. Each is at least eight bytes long.
const SIGNS: &[(&str, Sign)] = &[
    ("triedtoallocate", Sign::TriedToAllocate),
    ("outofmemory", Sign::OutOfMemory),
    ("outofthememory", Sign::OutOfMemory),
    ("totalcapacity", Sign::Capacity),
    ("totalcapacty", Sign::Capacity),
    ("tryingtoallocate", Sign::Trying),
    ("resource_exhausted", Sign::Exhausted),
    ("resourceexhausted", Sign::Exhausted),
    ("oomwhenallocating", Sign::OomWhen),
    ("unabletoallocate", Sign::Unable),
    ("memoryerror", Sign::MemoryError),
    ("invalidbuffersize:", Sign::Form(MessageForm::MpsBuffer)),
    ("cublas_status_alloc_failed", Sign::Form(MessageForm::Library)),
    ("cudnn_status_alloc_failed", Sign::Form(MessageForm::Library)),
    ("cusolver_status_alloc_failed", Sign::Form(MessageForm::Library)),
    ("cusparse_status_alloc_failed", Sign::Form(MessageForm::Library)),
    ("cublas_status_not_initialized", Sign::Form(MessageForm::LibraryDisguised)),
    ("cudnn_status_not_initialized", Sign::Form(MessageForm::LibraryDisguised)),
    ("cusolver_status_not_initialized", Sign::Form(MessageForm::LibraryDisguised)),
    ("cusparse_status_not_initialized", Sign::Form(MessageForm::LibraryDisguised)),
    ("cuda_error_out_of_memory", Sign::Weak(MessageForm::Driver)),
    ("cudaerrormemoryallocation", Sign::Weak(MessageForm::CudaMalloc)),
    ("preventsanoom,butcodemayrunmuchslower", Sign::Weak(MessageForm::LlmCManaged)),
    ("[errno12]cannotallocatememory", Sign::Weak(MessageForm::Host)),
    ("memoryallocationfailed", Sign::Weak(MessageForm::Host)),
    ("std::bad_alloc", Sign::Weak(MessageForm::Host)),
    ("cudaerror:", Sign::CudaError),
    ("hiperror:", Sign::CudaError),
    ("cublas_status_execution_failed", Sign::Not(NotOom::CudaError)),
    ("cudnn_status_execution_failed", Sign::Not(NotOom::CudaError)),
    ("cudnn_status_internal_error", Sign::Not(NotOom::CudaError)),
    ("device-sideassert", Sign::Not(NotOom::DeviceAssert)),
    ("illegalmemoryaccess", Sign::Not(NotOom::IllegalAccess)),
    ("outofresource", Sign::Not(NotOom::KernelResources)),
    ("toomanyresourcesrequested", Sign::Not(NotOom::KernelResources)),
    ("killedprocess", Sign::Not(NotOom::Killed)),
    ("killedpython", Sign::Not(NotOom::Killed)),
    ("oomkilled", Sign::Not(NotOom::Killed)),
    ("oom-killer", Sign::Not(NotOom::Killed)),
    ("oom-kill:", Sign::Not(NotOom::Killed)),
    ("exitcode137", Sign::Not(NotOom::Killed)),
    ("exitcode:137", Sign::Not(NotOom::Killed)),
    ("exitcode:-9", Sign::Not(NotOom::Killed)),
    ("returncode=-9", Sign::Not(NotOom::Killed)),
    ("signals.sigkill", Sign::Not(NotOom::Killed)),
    ("signal9(sigkill", Sign::Not(NotOom::Killed)),
    ("signal9:sigkill", Sign::Not(NotOom::Killed)),
    ("killedbysignal:killed", Sign::Not(NotOom::Killed)),
    ("nospaceleftondevice", Sign::Not(NotOom::DiskFull)),
    ("killedbysignal:buserror", Sign::Not(NotOom::SharedMemory)),
    ("insufficientsharedmemory", Sign::Not(NotOom::SharedMemory)),
    ("outofsharedmemory", Sign::Not(NotOom::SharedMemory)),
    ("notcompiledwithcudaenabled", Sign::Not(NotOom::CudaMissing)),
    ("nokernelimage", Sign::Not(NotOom::CudaMissing)),
    ("foundnonvidiadriver", Sign::Not(NotOom::CudaMissing)),
    ("modulenotfounderror", Sign::Not(NotOom::ModuleMissing)),
    ("importerror:", Sign::Not(NotOom::ModuleMissing)),
    ("keyboardinterrupt", Sign::Not(NotOom::Interrupted)),
    ("segmentationfault", Sign::Not(NotOom::Crashed)),
    ("ncclerror", Sign::Not(NotOom::Nccl)),
    ("ncclunhandledcudaerror", Sign::Not(NotOom::Nccl)),
    ("ncclsystemerror", Sign::Not(NotOom::Nccl)),
    ("collectiveoperationtimeout", Sign::Not(NotOom::Nccl)),
    ("childfailederror", Sign::Not(NotOom::ChildFailed)),
    ("(mostrecentcalllast", Sign::Traceback),
    ("xlaruntimeerror", Sign::Jax),
    ("jaxruntimeerror", Sign::Jax),
    ("/jax/_src", Sign::Jax),
    ("org_tensorflow", Sign::Jax),
    ("load_state_dict", Sign::Frame(Frame::Load)),
    ("torch.load(", Sign::Frame(Frame::Load)),
    ("model.to(", Sign::Frame(Frame::ToDevice)),
    (",inconvert", Sign::Frame(Frame::ToDevice)),
    ("estimate_loss", Sign::Frame(Frame::EstimateLoss)),
    ("inforward", Sign::Frame(Frame::Forward)),
    ("inbackward", Sign::Frame(Frame::Backward)),
    (".backward(", Sign::Frame(Frame::Backward)),
    ("clip_grad_norm", Sign::Frame(Frame::Clip)),
    ("optimizer.step", Sign::Frame(Frame::Optimizer)),
    ("scaler.step", Sign::Frame(Frame::Optimizer)),
    ("/optim/adamw.py", Sign::Frame(Frame::Optimizer)),
    ("torchinductor", Sign::Frame(Frame::Inductor)),
    ("torch/_inductor", Sign::Frame(Frame::Inductor)),
    ("torch/utils/checkpoint", Sign::Frame(Frame::Checkpointing)),
    ("cross_entropy", Sign::Frame(Frame::CrossEntropy)),
    ("dot_product_attention", Sign::Frame(Frame::Attention)),
    ("self.attn(", Sign::Frame(Frame::Attention)),
    ("self.c_attn(", Sign::Frame(Frame::Attention)),
    ("self.mlp(", Sign::Frame(Frame::Mlp)),
    ("self.lm_head(", Sign::Frame(Frame::LmHead)),
    ("pin_memory", Sign::Frame(Frame::PinMemory)),
    ("evaluation_loop", Sign::Frame(Frame::EstimateLoss)),
    ("evaluate_bpb", Sign::Frame(Frame::EstimateLoss)),
    ("nanochat/gpt.py", Sign::Frame(Frame::Nanochat)),
    ("nanochat/optim.py", Sign::Frame(Frame::Nanochat)),
    ("scripts/base_train.py", Sign::Frame(Frame::Nanochat)),
    ("transformers/trainer.py", Sign::Frame(Frame::Transformers)),
    ("transformers/models/", Sign::Frame(Frame::Transformers)),
    ("transformers\\trainer.py", Sign::Frame(Frame::Transformers)),
    ("transformers\\models\\", Sign::Frame(Frame::Transformers)),
    ("/peft/peft_model.py", Sign::Frame(Frame::Peft)),
    ("\\peft\\peft_model.py", Sign::Frame(Frame::Peft)),
    ("modeling_gemma2.py", Sign::Frame(Frame::Gemma2)),
    ("modeling_gemma3.py", Sign::Frame(Frame::Gemma3)),
    ("modeling_gpt2.py", Sign::Frame(Frame::Gpt2)),
    ("modeling_llama.py", Sign::Frame(Frame::Llama)),
    ("modeling_mistral.py", Sign::Frame(Frame::Mistral)),
    ("modeling_qwen2.py", Sign::Frame(Frame::Qwen2)),
    ("modeling_qwen3.py", Sign::Frame(Frame::Qwen3)),
    ("modeling_smollm3.py", Sign::Frame(Frame::SmolLm3)),
];

/// The last eight bytes of each phrase.
const KEYS: [u64; SIGNS.len()] = {
    let mut keys = [0; SIGNS.len()];
    let mut i = 0;
    while i < SIGNS.len() {
        let phrase = SIGNS[i].0.as_bytes();
        assert!(phrase.len() >= 8, "a phrase is too short to be found");
        let mut at = phrase.len() - 8;
        while at < phrase.len() {
            keys[i] = keys[i] << 8 | phrase[at] as u64;
            at += 1;
        }
        i += 1;
    }
    keys
};

const FILTER_BITS: u32 = 12;

const FILTER: [u64; 1 << (FILTER_BITS - 6)] = {
    let mut filter = [0; 1 << (FILTER_BITS - 6)];
    let mut i = 0;
    while i < KEYS.len() {
        let bit = place(KEYS[i]);
        filter[bit >> 6] |= 1 << (bit & 63);
        i += 1;
    }
    filter
};

/// Marks the end of a chain.
const NONE: u8 = u8::MAX;
/// Number of bits of a chain's index: enough that a chain has one or two phrases. This bounds the cost of a text in
/// which every byte passes the filter.
const CHAIN_BITS: u32 = 8;

/// First phrase of each chain, and the next phrase after each phrase.
const CHAINS: ([u8; 1 << CHAIN_BITS], [u8; KEYS.len()]) = {
    assert!(KEYS.len() < NONE as usize, "a phrase's number fits a byte");
    let (mut first, mut next) = ([NONE; 1 << CHAIN_BITS], [NONE; KEYS.len()]);
    let (mut i, mut number) = (0, 0);
    while i < KEYS.len() {
        let chain = place(KEYS[i]) >> (FILTER_BITS - CHAIN_BITS);
        next[i] = first[chain];
        first[chain] = number;
        i += 1;
        number += 1;
    }
    (first, next)
};

/// Returns the bit of the filter for a key. The multiplier is 2^64 divided by the golden ratio, which distributes the
/// keys well.
const fn place(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - FILTER_BITS)) as usize
}

/// Returns whether the last eight bytes may end a phrase. About one in fifty results is a false positive.
#[inline]
pub(super) fn may_be_a_sign(last: u64) -> bool {
    let bit = place(last);
    FILTER[bit >> 6] >> (bit & 63) & 1 == 1
}

/// Iterates over the phrases that end with these eight bytes.
pub(super) fn ending_with(last: u64) -> impl Iterator<Item = (&'static str, Sign)> {
    let numbered = |i: u8| (i != NONE).then_some(usize::from(i));
    let first = numbered(CHAINS.0[place(last) >> (FILTER_BITS - CHAIN_BITS)]);
    let chain = std::iter::successors(first, move |i| numbered(CHAINS.1[*i]));
    chain.filter(move |i| KEYS[*i] == last).map(|i| SIGNS[i])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phrase_is_found_by_its_end() {
        for (i, (phrase, _)) in SIGNS.iter().enumerate() {
            assert!(may_be_a_sign(KEYS[i]), "{phrase}");
            assert!(ending_with(KEYS[i]).any(|(found, _)| found == *phrase), "{phrase}");
        }
        // False positives of the filter.
        for text in [b"::::::::", b"4}94}94}"] {
            let last = u64::from_be_bytes(*text);
            assert!(may_be_a_sign(last) && ending_with(last).next().is_none());
        }
    }
}
