//! Training data in nanoGPT's layout: a directory with `train.bin`, `val.bin` and, for characters, `meta.pkl`.
//!
//! [`prepare`] creates such a directory from a text or from the built-in [`corpus`]; [`dataset`] reads one from any
//! source.

pub mod corpus;
pub mod dataset;
pub mod prepare;
pub mod tokenizer;

/// Name of the data set generated from the built-in [`corpus`].
pub const BUILTIN: &str = "builtin";
