//! Training data in nanoGPT's layout: a folder with `train.bin`, `val.bin` and, for characters, `meta.pkl`.
//!
//! [`prepare`] makes such a folder of a text or of the built-in [`corpus`]; [`dataset`] reads one, whoever made it.

pub mod corpus;
pub mod dataset;
pub mod prepare;
pub mod tokenizer;

/// The name of the data set that is made of the built-in [`corpus`].
pub const BUILTIN: &str = "builtin";
