//! Runs the tests of every op on the committed PTX instead of its C++ source. The host code and the references are the
//! same; the interpreter of `tests/ptx` executes the PTX.

/// Whether the PTX runs instead of its C++ source.
const COMPILED: bool = true;

#[path = "../ops/adamw.rs"]
mod adamw;
#[path = "../ops/attention.rs"]
mod attention;
#[path = "../ops/classifier.rs"]
mod classifier;
#[path = "../ops/compare.rs"]
mod compare;
#[path = "../ops/dropout.rs"]
mod dropout;
#[path = "../ops/encoder.rs"]
mod encoder;
#[path = "../ops/gelu.rs"]
mod gelu;
#[path = "../ops/global_norm.rs"]
mod global_norm;
#[path = "../ops/gpu.rs"]
mod gpu;
#[path = "../ops/layernorm.rs"]
mod layernorm;
#[path = "../ops/losses.rs"]
mod losses;
#[path = "../ops/matmul.rs"]
mod matmul;
mod mutated;
#[path = "../ops/numbers.rs"]
mod numbers;
#[path = "../ops/trainer.rs"]
mod trainer;

// Errors are compared in English.
use headroom_languages as _;
