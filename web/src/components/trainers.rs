//! Parts of the page of trainers other than nanoGPT.

pub mod advice;
pub mod form;
pub mod model;
