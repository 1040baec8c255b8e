//! Every op of the CUDA side against its twin on the CPU in f64: by the host's own code, on the card of this machine, or
//! where there is none on the emulated one.

mod attention;
mod card;
mod compare;
mod global_norm;
mod matmul;
mod numbers;
