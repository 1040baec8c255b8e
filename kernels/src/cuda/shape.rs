//! Model sizes that the kernels support, checked before any allocation.

use headroom_planner::gpt::{GptConfig, buffers::cuda::workspace};

use super::CudaError;

const OP: &str = "training on a GPU";

/// Rejects a model that a kernel would reject during a run.
///
/// # Errors
/// [`CudaError::Size`], with the size that the kernels do not support.
pub fn check(config: &GptConfig) -> Result<(), CudaError> {
    let (c, head_size) = (config.n_embd(), config.head_size());
    let size = |what, value, needed| Err(CudaError::Size { op: OP, what, value, needed });
    if !workspace::takes_heads_of(head_size) {
        return size("a head's size, n_embd / n_head,", head_size, "a multiple of 8 up to 128");
    }
    if workspace::norm_kernel(c).is_none() {
        return size("n_embd", c, "at most 9216");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use headroom_planner::gpt::GptShape;

    use super::*;

    #[track_caller]
    fn outcome(n_embd: u64, n_head: u64) -> String {
        let shape = GptShape { n_layer: 1, n_head, n_embd, block_size: 8, vocab_size: 65, dropout: 0.0, bias: false };
        let checked = check(&GptConfig::new(shape).expect("valid"));
        checked.map_or_else(|error| error.to_string(), |()| "taken".to_owned())
    }

    #[test]
    fn heads_of_other_sizes_and_models_that_are_too_wide_are_named() {
        assert_eq!(outcome(768, 12), "taken");
        assert_eq!(outcome(9216, 72), "taken");
        for (n_embd, n_head, size) in [(8, 2, 4), (1024, 4, 256), (20, 1, 20)] {
            let what = "training on a GPU: a head's size, n_embd / n_head,";
            assert_eq!(outcome(n_embd, n_head), format!("{what} is {size}, and has to be a multiple of 8 up to 128"));
        }
        assert_eq!(outcome(9344, 73), "training on a GPU: n_embd is 9344, and has to be at most 9216");
    }
}
