//! Parts of the page of trainers other than nanoGPT.

pub mod fit;
pub mod form;
pub mod model;
