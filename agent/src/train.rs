//! Training, as far as it is here: what a run leaves on disk, and the weights that one starts from.

#[cfg_attr(not(test), expect(dead_code, unused_imports, reason = "what trains comes with `headroom train`"))]
pub mod checkpoint;
pub mod files;
pub mod pretrained;
