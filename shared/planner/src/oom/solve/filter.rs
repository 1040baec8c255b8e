//! Quick check before a simulation: whether any tensor that a candidate stores has the requested size.

use super::{
    candidate::{Candidate, Model},
    source_of,
};
use crate::{
    dtype::Dtype,
    gpt::tensors::{BLOCK_BYTES, Dims, MAX_TENSOR_BYTES, TensorId},
    memory::{
        allocator::segment_bytes,
        program::{Action, Phase},
        stored::TensorTable,
    },
    nanogpt::Value,
    oom::Size,
    session::{Options, resolve},
    train_config::Attention,
};

/// Number of blocks in the program that lists a mode's tensors: every block stores the same ones.
const N_LAYERS_WRITTEN: i64 = 2;

/// Batch sizes and sequence lengths whose tensor sizes tell sizes of different tensors apart.
const PROBES: [(u64, u64); 2] = [(3, 64), (5, 128)];

/// Filter that caches the tensors of each mode of a model.
#[derive(Debug)]
pub(super) struct Filter {
    requested: Size,
    allocated_bytes: u64,
    options: Options,
    modes: Vec<Mode>,
}

/// Tensors that a model stores in one mode, for any batch.
#[derive(Debug)]
struct Mode {
    model: &'static Model,
    dtype: Dtype,
    compile: bool,
    /// Dimensions that do not depend on the batch. `None` if no such run can be planned on this GPU.
    dims: Option<Dims>,
    /// One tensor of each size, with the phase that first allocates it.
    stored: Vec<(TensorId, Phase)>,
}

impl Filter {
    /// Creates a filter for a requested size and the allocated bytes, on the GPU of the options.
    pub(super) const fn new(requested: Size, allocated_bytes: u64, options: Options) -> Self {
        Self { requested, allocated_bytes, options, modes: vec![] }
    }

    /// Returns a tensor of the requested size, with the phase that first allocates it. Returns `None` if the candidate
    /// lacks one, or if its weights exceed the allocated memory.
    pub(super) fn matching(&mut self, candidate: &Candidate) -> Option<(TensorId, Phase)> {
        if candidate.model.matrix_bytes() > self.allocated_bytes {
            return None;
        }
        let is_mode = |mode: &Mode| {
            std::ptr::eq(mode.model, candidate.model)
                && (mode.dtype, mode.compile) == (candidate.dtype, candidate.compile)
        };
        let at = self.modes.iter().position(is_mode).unwrap_or_else(|| {
            self.modes.push(Mode::of(candidate, &self.options));
            self.modes.len() - 1
        });
        let mode = &self.modes[at];
        let dims = Dims { b: candidate.batch_size, t: candidate.block_size, ..mode.dims? };
        let has_size = |stored: &TensorId| {
            let bytes = stored.bytes(&dims).and_then(|bytes| bytes.checked_next_multiple_of(BLOCK_BYTES));
            bytes.is_some_and(|bytes| bytes <= MAX_TENSOR_BYTES && self.requested.is_printed_for(segment_bytes(bytes)))
        };
        mode.stored.iter().find(|(stored, _)| has_size(stored)).copied()
    }
}

impl Mode {
    fn of(candidate: &Candidate, options: &Options) -> Self {
        let mut stored: Vec<(TensorId, Phase)> = Vec::new();
        // Sizes for two batches: tensors with equal ones have equal sizes for every batch.
        let mut sizes: Vec<[Option<u64>; 2]> = Vec::new();
        let mut dims = None;
        let mut keys = candidate.small_keys();
        keys.push(("n_layer", Value::Int(N_LAYERS_WRITTEN)));
        for attention in [Attention::Flash, Attention::Math] {
            let options = Options { attention, ..options.clone() };
            let request = resolve(&[source_of(&keys)], &options).request;
            let Some(program) = request.and_then(|request| request.program().ok()) else { continue };
            let TensorTable::Gpt(tensors) = &program.tensors else { continue };
            let played = program.schedule.iter().flat_map(|turn| &turn.sections);
            for &(phase, section) in played {
                for event in &program.sections[section.index()].events {
                    let Action::Alloc(code, _) = event.action() else { continue };
                    let Some(tensor) = TensorId::from_code(code) else { continue };
                    let size = PROBES.map(|(b, t)| tensor.bytes(&Dims { b, t, ..tensors.dims }));
                    if !sizes.contains(&size) {
                        sizes.push(size);
                        stored.push((tensor, phase));
                    }
                }
            }
            dims = Some(tensors.dims);
        }
        let Candidate { model, dtype, compile, .. } = *candidate;
        Self { model, dtype, compile, dims, stored }
    }
}
