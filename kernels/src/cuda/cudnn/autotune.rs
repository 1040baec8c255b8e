//! Selection between cuDNN and the built-in kernels: computes on random numbers, compares and times both.

use headroom_planner::gpt::buffers::cuda::AttentionBackend;

use super::{
    CudnnDirections, Direction, Shape,
    calls::{DescriptorGpu, Handle},
    compare::{Difference, differs, fill, picked},
    graph::{Graph, Sizes},
    plan::Plan,
};
use crate::cuda::{
    Bf16, BuiltinKernels, CudaError, Device, Element, Slice,
    attention::{Attention, AutotuneInputs},
    libraries::timed,
};

/// Seeds of the random numbers.
const KEYS: [u32; 2] = [0x71, 0x72];

/// Why the built-in kernels compute a direction.
type Refusal = String;
/// A direction, and its times if measured.
type AutotuneResult = Result<(Direction, Option<Times>), Refusal>;

/// Inputs of the selection.
pub(super) struct Autotuner<'a> {
    pub device: &'a Device,
    pub trial: &'a AutotuneInputs,
    pub handle: &'a Handle,
    /// The stored selection, which makes timing unnecessary.
    pub before: Option<CudnnDirections>,
    /// Whether directions are timed: only if the next run can repeat the selection.
    pub times: bool,
}

/// Milliseconds of a direction, by the library and by the built-in kernels.
struct Times {
    theirs: f32,
    ours: f32,
}

impl Autotuner<'_> {
    /// Returns the directions that the library computes: forward and backward. Rejections are noted.
    ///
    /// # Errors
    /// The GPU fails.
    pub fn directions(
        &self,
        shape: &Shape,
        notes: &mut Vec<String>,
    ) -> Result<(Option<Direction>, Option<Direction>), CudaError> {
        // The stored selection has no direction, so nothing is tried.
        if self.before == Some(CudnnDirections::default()) {
            return Ok((None, None));
        }
        let AutotuneInputs { saved, dout, heads, .. } = *self.trial;
        let token = heads.c as u64;
        fill(self.device, saved.qkv, 3 * token * heads.t as u64, KEYS[0])?;
        fill(self.device, dout, token * heads.t as u64, KEYS[1])?;
        let (before, mut forward, mut backward) = (self.before, None, None);
        if before.is_none_or(|before| before.forward) {
            forward = self.taken("attention", self.forward(shape)?, notes);
        }
        if before.is_none_or(|before| before.backward) {
            backward = self.taken("attention's gradient", self.backward(shape)?, notes);
        }
        Ok((forward, backward))
    }

    /// Returns a tried direction if it is faster or was selected before.
    fn taken(&self, what: &str, tried: AutotuneResult, notes: &mut Vec<String>) -> Option<Direction> {
        match tried {
            Err(why) => {
                notes.push(format!("cannot use cuDNN for {what}: {why}; own kernels are used"));
                None
            }
            Ok((direction, None)) => Some(direction),
            Ok((direction, Some(Times { theirs, ours }))) => {
                notes.push(format!("{what}: {theirs:.3} ms by cuDNN, {ours:.3} ms by own kernels"));
                (theirs < ours).then_some(direction)
            }
        }
    }

    fn forward(&self, shape: &Shape) -> Result<AutotuneResult, CudaError> {
        let AutotuneInputs { saved, heads, rooms, .. } = *self.trial;
        let device = self.device;
        let direction = match self.planned(shape, Graph::forward, rooms[0], shape.b)? {
            Ok(direction) => direction,
            Err(why) => return Ok(Err(why)),
        };
        let ours = || Attention::forward(&BuiltinKernels, device, saved.out, saved.lse, saved.qkv, heads);
        let theirs = || direction.forward(self.handle, device, saved.out, saved.lse, saved.qkv, heads);
        let results = || Ok((self.picked(saved.out)?, self.picked(saved.lse)?));
        ours()?;
        let (out, lse) = results()?;
        let once = || {
            device.zero(saved.out)?;
            device.zero(saved.lse)?;
            theirs()?;
            device.synchronize()?;
            results()
        };
        let ((their_out, their_lse), repeats) = match twice(once)? {
            Ok(results) => results,
            Err(why) => return Ok(Err(why)),
        };
        let tensors = [
            ("results", differs(halves(&out), halves(&their_out))),
            ("logsumexps", differs(lse.iter().copied(), their_lse.iter().copied())),
        ];
        if let Some(why) = difference(tensors) {
            return Ok(Err(why));
        }
        if !repeats {
            return Ok(Err("its results do not repeat themselves".to_owned()));
        }
        let times = self.times(&theirs, &ours)?;
        Ok(times.map(|times| (direction, times)))
    }

    fn backward(&self, shape: &Shape) -> Result<AutotuneResult, CudaError> {
        let AutotuneInputs { saved, dout, dqkv, rows, heads, rooms, .. } = *self.trial;
        let device = self.device;
        let group = AttentionBackend::Cudnn.cudnn_sequences(shape.b, heads.nh as u64, heads.t as u64);
        let Some(sequences) = group else {
            return Ok(Err("a sequence has more scores than there is room for".to_owned()));
        };
        let direction = match self.planned(shape, Graph::backward, rooms[1], sequences)? {
            Ok(direction) => direction,
            Err(why) => return Ok(Err(why)),
        };
        // Both start from the results of the built-in forward, whichever forward the run uses.
        Attention::forward(&BuiltinKernels, device, saved.out, saved.lse, saved.qkv, heads)?;
        let ours = || BuiltinKernels.backward(device, dqkv, rows, dout, saved, heads);
        let theirs = || direction.backward(self.handle, device, (dqkv, rows, dout), saved, heads);
        ours()?;
        let own = self.picked(dqkv)?;
        let once = || {
            device.zero(dqkv)?;
            theirs()?;
            device.synchronize()?;
            self.picked(dqkv)
        };
        let (theirs_first, repeats) = match twice(once)? {
            Ok(results) => results,
            Err(why) => return Ok(Err(why)),
        };
        let of = |values: &[Bf16], nth: usize| {
            let parts = values.chunks(heads.c).enumerate().filter(move |(i, _)| i % 3 == nth);
            parts.flat_map(|(_, values)| values.iter().map(|x| x.to_f32())).collect::<Vec<f32>>()
        };
        let names = ["gradients of queries", "gradients of keys", "gradients of values"];
        let tensors =
            [0, 1, 2].map(|nth| (names[nth], differs(of(&own, nth).into_iter(), of(&theirs_first, nth).into_iter())));
        if let Some(why) = difference(tensors) {
            return Ok(Err(why));
        }
        if !repeats {
            return Ok(Err("its gradients do not repeat themselves".to_owned()));
        }
        let times = self.times(&theirs, &ours)?;
        Ok(times.map(|times| (direction, times)))
    }

    /// Plans a graph with the library.
    fn planned(
        &self,
        shape: &Shape,
        graph: fn(Sizes) -> Graph,
        room: Slice<u8>,
        sequences: u64,
    ) -> Result<Result<Direction, Refusal>, CudaError> {
        let Some(sizes) = shape.sizes(sequences) else { return Ok(Err("it is too large".to_owned())) };
        // The library uses the current context of this thread.
        self.device.stream()?;
        let plan = refused(Plan::new(DescriptorGpu::Here(self.handle), &graph(sizes), room.bytes()))?;
        Ok(plan.and_then(|plan| {
            let plan = plan.ok_or("no engine runs in the available workspace")?;
            Ok(Direction { plan, room, sequences })
        }))
    }

    /// Reads a tensor's elements in the compared sequences.
    fn picked<T: Element>(&self, tensor: Slice<T>) -> Result<Vec<T>, CudaError> {
        let sequences = Shape::of(self.trial).b;
        let len = tensor.len() / sequences.max(1);
        let mut values = vec![];
        for sequence in picked(sequences) {
            values.extend(self.device.download(tensor.part(sequence * len, len)?)?);
        }
        Ok(values)
    }

    /// Times both, if required.
    fn times(
        &self,
        theirs: &dyn Fn() -> Result<(), CudaError>,
        ours: &dyn Fn() -> Result<(), CudaError>,
    ) -> Result<Result<Option<Times>, Refusal>, CudaError> {
        if !self.times || self.before.is_some() {
            return Ok(Ok(None));
        }
        let theirs = match refused(timed(self.device, theirs))? {
            Ok(millis) => millis,
            Err(why) => return Ok(Err(why)),
        };
        Ok(Ok(Some(Times { theirs, ours: timed(self.device, ours)? })))
    }
}

/// Converts an error of the library to a refusal; an error of the GPU stays an error.
fn refused<T>(result: Result<T, CudaError>) -> Result<Result<T, Refusal>, CudaError> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(error @ CudaError::Cudnn { .. }) => Ok(Err(error.to_string())),
        Err(other) => Err(other),
    }
}

/// Computes twice with the library; returns the result and whether both are equal.
fn twice<T: PartialEq>(once: impl Fn() -> Result<T, CudaError>) -> Result<Result<(T, bool), Refusal>, CudaError> {
    refused(once().and_then(|first| {
        let repeats = once()? == first;
        Ok((first, repeats))
    }))
}

fn halves(values: &[Bf16]) -> impl Iterator<Item = f32> {
    values.iter().map(|x| x.to_f32())
}

/// The first tensor that differs, and its distance.
fn difference<const N: usize>(tensors: [(&str, Option<Difference>); N]) -> Option<Refusal> {
    tensors.into_iter().find_map(|(name, by)| Some(format!("its {name} differ from ours by {}", by?)))
}
