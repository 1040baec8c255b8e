//! Training data in nanoGPT's layout: a folder with `train.bin`, `val.bin` and, for characters, `meta.pkl`.
//!
//! [`prepare`] makes such a folder of a text or of the built-in [`corpus`]; [`dataset`] reads one, whoever made it.

pub mod corpus;
#[allow(dead_code, reason = "the trainer reads with it; no command does yet")]
pub mod dataset;
pub mod meta;
pub mod prepare;
#[cfg_attr(not(test), expect(dead_code, reason = "sampling decodes; preparing only encodes"))]
pub mod tokenizer;
