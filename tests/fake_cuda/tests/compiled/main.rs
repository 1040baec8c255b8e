//! The tests of every op once more, over the committed PTX instead of the C++ that it is compiled from: through the same host
//! code, against the same references, by the interpreter of `tests/ptx`.

/// Whether the PTX runs, and not the C++ that it is compiled from.
const COMPILED: bool = true;

#[path = "../ops/adamw.rs"]
mod adamw;
#[path = "../ops/attention.rs"]
mod attention;
#[path = "../ops/card.rs"]
mod card;
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
