//! What each product is done with: proposals are timed where the choice can be kept, and chosen once for a shape.

use std::collections::BTreeMap;

use super::{
    calls::{Algorithm, Handle, Operation},
    shape::{Shape, Slices},
};
use crate::cuda::{
    CudaError, Device, Slice,
    libraries::{
        kept::{Choices, Kept},
        timed,
    },
};

/// By a shape, what the library knows its algorithm by.
type Algorithms = Choices<[u64; 8]>;

/// Shapes that are told apart: a run has some twenty. What comes after is done by our own kernels.
const SHAPES_MAX: usize = 256;
/// Notes that are kept: more would say the same of other shapes.
const NOTES_MAX: usize = 64;

/// A product that the library does.
#[derive(Debug)]
struct Prepared {
    operation: Operation,
    algorithm: Algorithm,
}

/// What was chosen so far.
#[derive(Debug)]
pub struct Chosen {
    /// By shapes; none where our own kernels do it. Before the handle, which they are made with.
    shapes: BTreeMap<Shape, Option<Prepared>>,
    handle: Handle,
    workspace: Slice<u8>,
    kept: Option<Kept>,
    /// What the file had.
    found: Algorithms,
    /// Whether proposals are timed: before the run has begun, and where the choice can be kept.
    times: bool,
    notes: Vec<String>,
}

impl Chosen {
    /// Nothing yet.
    pub fn new(handle: Handle, kept: Option<Kept>) -> Self {
        let mut chosen = Self {
            shapes: BTreeMap::new(),
            handle,
            workspace: Slice::new(0, 0),
            times: kept.is_some(),
            kept,
            found: Algorithms::new(),
            notes: vec![],
        };
        chosen.found = chosen.read().unwrap_or_default();
        chosen
    }

    /// Takes the room. What was chosen without it is chosen anew.
    pub fn begin(&mut self, workspace: Slice<u8>) {
        self.workspace = workspace;
        self.shapes.clear();
    }

    /// What a person should know.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn note(&mut self, note: String) {
        if self.notes.len() < NOTES_MAX && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// What the file has now.
    fn read(&mut self) -> Option<Algorithms> {
        match self.kept.as_ref()?.read() {
            Ok(algorithms) => Some(algorithms),
            Err(error) => {
                self.note(format!("cuBLASLt's algorithms are timed anew: {error}"));
                None
            }
        }
    }

    /// Does a product; whether it did, and else it is for our own kernels.
    #[track_caller]
    pub fn multiply(&mut self, device: &Device, shape: Shape, slices: Slices) -> Result<bool, CudaError> {
        if !slices.are_aligned() {
            self.note(format!(
                "{shape}: a matrix does not begin at a multiple of 256 bytes: own kernels multiply there"
            ));
            return Ok(false);
        }
        if !self.shapes.contains_key(&shape) {
            if self.shapes.len() >= SHAPES_MAX {
                self.note(format!(
                    "there are more than {SHAPES_MAX} shapes of products: own kernels multiply the rest"
                ));
                return Ok(false);
            }
            // The library's calls are for the card whose context is this thread's.
            device.stream()?;
            let prepared = self.prepare(device, shape, slices)?;
            self.shapes.insert(shape, prepared);
        }
        let Some(Some(prepared)) = self.shapes.get(&shape) else { return Ok(false) };
        self.handle.multiply(device, &prepared.operation, &prepared.algorithm, slices, self.workspace)?;
        Ok(true)
    }

    #[track_caller]
    fn prepare(&mut self, device: &Device, shape: Shape, slices: Slices) -> Result<Option<Prepared>, CudaError> {
        let operation = self.handle.operation(shape.product(), slices.bias)?;
        if let Some(algorithm) = self.kept_algorithm(&operation, shape) {
            return Ok(Some(Prepared { operation, algorithm }));
        }
        let proposals = match self.handle.proposals(&operation, self.workspace.bytes()) {
            Ok(proposals) => proposals,
            Err(CudaError::CublasLt { code, .. }) => {
                self.note(format!("cuBLASLt has no algorithm for {shape} ({code}): own kernels multiply there"));
                return Ok(None);
            }
            Err(other) => return Err(other),
        };
        let fastest =
            if self.times { self.fastest(device, &operation, &proposals, slices)? } else { proposals.first().copied() };
        if fastest.is_none() {
            self.note(format!("cuBLASLt has no algorithm for {shape}: own kernels multiply there"));
        }
        Ok(fastest.map(|algorithm| Prepared { operation, algorithm }))
    }

    /// What the file has for a shape, if the library takes it still.
    fn kept_algorithm(&mut self, operation: &Operation, shape: Shape) -> Option<Algorithm> {
        let words = *self.found.get(&shape.to_string())?;
        match self.handle.kept(operation, words) {
            Ok(algorithm) if algorithm.workspace_bytes <= self.workspace.bytes() => Some(algorithm),
            Ok(_) => {
                self.note(format!("the algorithm kept for {shape} needs more room than there is: chosen anew"));
                None
            }
            Err(error) => {
                self.note(format!("cuBLASLt refuses the algorithm kept for {shape} ({error}): chosen anew"));
                None
            }
        }
    }

    /// The proposal that takes least time on these very slices, whose values are lost.
    #[track_caller]
    fn fastest(
        &self,
        device: &Device,
        operation: &Operation,
        proposals: &[Algorithm],
        slices: Slices,
    ) -> Result<Option<Algorithm>, CudaError> {
        let mut fastest: Option<(f32, Algorithm)> = None;
        for algorithm in proposals {
            let multiply = || self.handle.multiply(device, operation, algorithm, slices, self.workspace);
            match timed(device, multiply) {
                Ok(millis) if fastest.is_none_or(|(least, _)| millis < least) => fastest = Some((millis, *algorithm)),
                // One that the library proposes and then does not do is none.
                Ok(_) | Err(CudaError::CublasLt { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(fastest.map(|(_, algorithm)| algorithm))
    }

    /// Nothing is timed from now on, and what was chosen is kept. Where another process was faster its choice is taken,
    /// so that both can be resumed.
    pub fn settle(&mut self) {
        self.times = false;
        let Some(kept) = self.kept.clone() else { return };
        self.found = self.read().unwrap_or_default();
        let shapes: Vec<Shape> = self.shapes.keys().copied().collect();
        let mut all = self.found.clone();
        let mut is_new = false;
        for shape in shapes {
            let Some(Some(mut prepared)) = self.shapes.remove(&shape) else {
                self.shapes.insert(shape, None);
                continue;
            };
            if let Some(algorithm) = self.kept_algorithm(&prepared.operation, shape) {
                prepared.algorithm = algorithm;
            }
            let words = prepared.algorithm.words();
            is_new |= all.insert(shape.to_string(), words) != Some(words);
            self.shapes.insert(shape, Some(prepared));
        }
        if is_new && let Err(error) = kept.write(all) {
            self.note(format!("cuBLASLt's algorithms are not kept, and a resumed run may take others: {error}"));
        }
    }
}
