//! Selection of an algorithm per shape: proposals are timed if the selection can be stored.

use std::collections::BTreeMap;

use super::{
    calls::{Algorithm, Handle, Operation},
    shape::{Shape, Slices},
};
use crate::cuda::{
    CudaError, Device, Slice,
    libraries::{
        algorithm_file::{AlgorithmFile, Choices},
        timed,
    },
};

/// Identifiers of algorithms by shape.
type Algorithms = Choices<[u64; 8]>;

/// Maximum number of shapes; a run has some twenty. Built-in kernels compute products of further shapes.
const SHAPES_MAX: usize = 256;
/// Maximum number of notes; more would only repeat them for other shapes.
const NOTES_MAX: usize = 64;

/// A product with its selected algorithm.
#[derive(Debug)]
struct PreparedProduct {
    operation: Operation,
    algorithm: Algorithm,
}

/// Algorithms selected so far.
#[derive(Debug)]
pub struct AlgorithmCache {
    /// Products by shape; `None` for those of the built-in kernels. Declared before the handle, which creates them.
    shapes: BTreeMap<Shape, Option<PreparedProduct>>,
    handle: Handle,
    workspace: Slice<u8>,
    kept: Option<AlgorithmFile>,
    /// Contents of the file.
    found: Algorithms,
    /// Whether proposals are timed: only before the run begins, and if the selection can be stored.
    times: bool,
    notes: Vec<String>,
}

impl AlgorithmCache {
    /// An empty cache, with the algorithms stored in the file.
    pub fn new(handle: Handle, kept: Option<AlgorithmFile>) -> Self {
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

    /// Sets the workspace, and clears algorithms selected for another one.
    pub fn begin(&mut self, workspace: Slice<u8>) {
        self.workspace = workspace;
        self.shapes.clear();
    }

    /// Messages for the user.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn note(&mut self, note: String) {
        if self.notes.len() < NOTES_MAX && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Reads the file.
    fn read(&mut self) -> Option<Algorithms> {
        match self.kept.as_ref()?.read() {
            Ok(algorithms) => Some(algorithms),
            Err(error) => {
                self.note(format!("cannot use the stored cuBLASLt algorithms: {error}; they are measured again"));
                None
            }
        }
    }

    /// Computes a product; returns false if the built-in kernels must compute it.
    #[track_caller]
    pub fn multiply(&mut self, device: &Device, shape: Shape, slices: Slices) -> Result<bool, CudaError> {
        if !slices.are_aligned() {
            self.note(format!(
                "cannot use cuBLASLt for {shape}: a matrix is not aligned to 256 bytes; own kernels are used"
            ));
            return Ok(false);
        }
        if !self.shapes.contains_key(&shape) {
            if self.shapes.len() >= SHAPES_MAX {
                self.note(format!(
                    "cannot use cuBLASLt for more than {SHAPES_MAX} shapes; own kernels are used for the others"
                ));
                return Ok(false);
            }
            // The library uses the current context of this thread.
            device.stream()?;
            let prepared = self.prepare(device, shape, slices)?;
            self.shapes.insert(shape, prepared);
        }
        let Some(Some(prepared)) = self.shapes.get(&shape) else { return Ok(false) };
        self.handle.multiply(device, &prepared.operation, &prepared.algorithm, slices, self.workspace)?;
        Ok(true)
    }

    #[track_caller]
    fn prepare(&mut self, device: &Device, shape: Shape, slices: Slices) -> Result<Option<PreparedProduct>, CudaError> {
        let operation = self.handle.operation(shape.product(), slices.bias)?;
        if let Some(algorithm) = self.kept_algorithm(&operation, shape) {
            return Ok(Some(PreparedProduct { operation, algorithm }));
        }
        let proposals = match self.handle.proposals(&operation, self.workspace.bytes()) {
            Ok(proposals) => proposals,
            Err(CudaError::CublasLt { code, .. }) => {
                self.note(format!("cannot use cuBLASLt for {shape}: {code}; own kernels are used"));
                return Ok(None);
            }
            Err(other) => return Err(other),
        };
        let fastest =
            if self.times { self.fastest(device, &operation, &proposals, slices)? } else { proposals.first().copied() };
        if fastest.is_none() {
            self.note(format!("cannot use cuBLASLt for {shape}: it proposes no algorithm; own kernels are used"));
        }
        Ok(fastest.map(|algorithm| PreparedProduct { operation, algorithm }))
    }

    /// The stored algorithm of a shape, if the library still accepts it.
    fn kept_algorithm(&mut self, operation: &Operation, shape: Shape) -> Option<Algorithm> {
        let words = *self.found.get(&shape.to_string())?;
        match self.handle.kept(operation, words) {
            Ok(algorithm) if algorithm.workspace_bytes <= self.workspace.bytes() => Some(algorithm),
            Ok(_) => {
                self.note(format!(
                    "cannot use the stored algorithm for {shape}: its workspace is too large; another one is selected"
                ));
                None
            }
            Err(error) => {
                self.note(format!("cannot use the stored algorithm for {shape}: {error}; another one is selected"));
                None
            }
        }
    }

    /// Returns the proposal that is fastest on these slices, whose contents are overwritten.
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
                // An algorithm that the library proposes but cannot run is skipped.
                Ok(_) | Err(CudaError::CublasLt { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(fastest.map(|(_, algorithm)| algorithm))
    }

    /// Ends the timing and stores the selection. If another process has stored one in the meantime, that one is used,
    /// so that both runs can be resumed.
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
