//! Every CUDA op compared with its CPU reference in f64, through the host's own code. Tests run on this machine's GPU,
//! or on the emulated one without a GPU.

/// Whether the PTX runs instead of its C++ source.
const COMPILED: bool = false;

mod adamw;
mod attention;
mod classifier;
mod compare;
mod dropout;
mod encoder;
mod gelu;
mod global_norm;
mod gpu;
mod layernorm;
mod losses;
mod matmul;
mod numbers;
mod trainer;

// Errors are compared in English.
use headroom_languages as _;
