//! What of the library is taken: computed on random numbers, held against our kernels, and timed.

use headroom_shared::gpt::buffers::cuda::Attender;

use super::{
    Direction, Shape, Taken,
    calls::{For, Handle},
    compare::{Difference, differs, fill, picked},
    graph::{Graph, Sizes},
    plan::Plan,
};
use crate::cuda::{
    Bf16, CudaError, Device, Element, Own, Slice,
    attention::{Attention, Trial},
    libraries::timed,
};

/// Seeds of the random numbers.
const KEYS: [u32; 2] = [0x71, 0x72];

/// Why a direction is our kernels'.
type Refusal = String;
/// A direction, and how long it took where that was asked.
type Tried = Result<(Direction, Option<Times>), Refusal>;

/// What is tried, on which tensors.
pub(super) struct Trying<'a> {
    pub device: &'a Device,
    pub trial: &'a Trial,
    pub handle: &'a Handle,
    /// What was taken before, which needs no timing.
    pub before: Option<Taken>,
    /// Whether what is faster is asked at all: not where the next run could not choose alike.
    pub times: bool,
}

/// Milliseconds of a direction, by the library and by our kernels.
struct Times {
    theirs: f32,
    ours: f32,
}

impl Trying<'_> {
    /// Forward and backward, as far as the library is to do them. What is refused is noted.
    ///
    /// # Errors
    /// The card fails.
    pub fn directions(
        &self,
        shape: &Shape,
        notes: &mut Vec<String>,
    ) -> Result<(Option<Direction>, Option<Direction>), CudaError> {
        // Nothing of it was taken before: there is nothing to try.
        if self.before == Some(Taken::default()) {
            return Ok((None, None));
        }
        let Trial { saved, dout, heads, .. } = *self.trial;
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

    /// A direction that was tried, where it is faster or was taken before.
    fn taken(&self, what: &str, tried: Tried, notes: &mut Vec<String>) -> Option<Direction> {
        match tried {
            Err(why) => {
                notes.push(format!("{what} is by own kernels, as cuDNN's is not taken: {why}"));
                None
            }
            Ok((direction, None)) => Some(direction),
            Ok((direction, Some(Times { theirs, ours }))) => {
                notes.push(format!("{what}: {theirs:.3} ms by cuDNN, {ours:.3} ms by own kernels"));
                (theirs < ours).then_some(direction)
            }
        }
    }

    fn forward(&self, shape: &Shape) -> Result<Tried, CudaError> {
        let Trial { saved, heads, rooms, .. } = *self.trial;
        let device = self.device;
        let direction = match self.planned(shape, Graph::forward, rooms[0], shape.b)? {
            Ok(direction) => direction,
            Err(why) => return Ok(Err(why)),
        };
        let ours = || Attention::forward(&Own, device, saved.out, saved.lse, saved.qkv, heads);
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

    fn backward(&self, shape: &Shape) -> Result<Tried, CudaError> {
        let Trial { saved, dout, dqkv, rows, heads, rooms, .. } = *self.trial;
        let device = self.device;
        let group = Attender::Cudnn.cudnn_sequences(shape.b, heads.nh as u64, heads.t as u64);
        let Some(sequences) = group else {
            return Ok(Err("a sequence has more scores than there is room for".to_owned()));
        };
        let direction = match self.planned(shape, Graph::backward, rooms[1], sequences)? {
            Ok(direction) => direction,
            Err(why) => return Ok(Err(why)),
        };
        // Of our kernels' results, whoever computes them in the run.
        Attention::forward(&Own, device, saved.out, saved.lse, saved.qkv, heads)?;
        let ours = || Own.backward(device, dqkv, rows, dout, saved, heads);
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

    /// A graph as the library can compute it.
    fn planned(
        &self,
        shape: &Shape,
        graph: fn(Sizes) -> Graph,
        room: Slice<u8>,
        sequences: u64,
    ) -> Result<Result<Direction, Refusal>, CudaError> {
        let Some(sizes) = shape.sizes(sequences) else { return Ok(Err("it is too large".to_owned())) };
        // The library's calls are for the card whose context is this thread's.
        self.device.stream()?;
        let plan = refused(Plan::new(For::Here(self.handle), &graph(sizes), room.bytes()))?;
        Ok(plan.and_then(|plan| {
            let plan = plan.ok_or("no engine of it can, with the room that there is")?;
            Ok(Direction { plan, room, sequences })
        }))
    }

    /// A tensor's elements in the sequences that are compared.
    fn picked<T: Element>(&self, tensor: Slice<T>) -> Result<Vec<T>, CudaError> {
        let sequences = Shape::of(self.trial).b;
        let len = tensor.len() / sequences.max(1);
        let mut values = vec![];
        for sequence in picked(sequences) {
            values.extend(self.device.download(tensor.part(sequence * len, len)?)?);
        }
        Ok(values)
    }

    /// How long both take, where that is asked.
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

/// What the library refuses is said; what the card refuses is an error.
fn refused<T>(result: Result<T, CudaError>) -> Result<Result<T, Refusal>, CudaError> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(error @ CudaError::Cudnn { .. }) => Ok(Err(error.to_string())),
        Err(other) => Err(other),
    }
}

/// What the library computes, and whether it computes the same again.
fn twice<T: PartialEq>(once: impl Fn() -> Result<T, CudaError>) -> Result<Result<(T, bool), Refusal>, CudaError> {
    refused(once().and_then(|first| {
        let repeats = once()? == first;
        Ok((first, repeats))
    }))
}

fn halves(values: &[Bf16]) -> impl Iterator<Item = f32> {
    values.iter().map(|x| x.to_f32())
}

/// Which tensor differs first, and by how much.
fn difference<const N: usize>(tensors: [(&str, Option<Difference>); N]) -> Option<Refusal> {
    tensors.into_iter().find_map(|(name, by)| Some(format!("its {name} differ from ours by {}", by?)))
}
