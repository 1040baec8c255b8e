//! Every op of the CUDA side against its twin on the CPU in f64: by the host's own code, on the card of this machine, or
//! where there is none on the emulated one.

/// Whether the PTX runs, and not the C++ that it is compiled from.
const COMPILED: bool = false;

mod adamw;
mod attention;
mod card;
mod classifier;
mod compare;
mod dropout;
mod encoder;
mod gelu;
mod global_norm;
mod layernorm;
mod losses;
mod matmul;
mod numbers;
mod trainer;
