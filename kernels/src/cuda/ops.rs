//! The kernels as functions: each checks the lengths of its tensors, chooses the grid, and launches.
//!
//! Functions mirror [`crate::reference`]: outputs come first, then inputs, then sizes.

pub mod adamw_update;
pub mod attention_backward;
pub mod attention_forward;
pub mod bias_backward;
pub mod classifier;
pub mod dropout;
pub mod encoder_backward;
pub mod encoder_forward;
pub mod gelu;
pub mod global_norm;
pub mod layernorm_backward;
pub mod layernorm_forward;
pub mod losses;
pub mod matmul;
mod sum_planes;

use super::{CudaError, Device, Module};

/// Number of 16-bit elements that a kernel moves at once.
const EIGHT: u64 = 8;

/// Upper bound of how far indices exceed the number of elements. Kernels count in 32 bits, and threads of the last
/// block and of grid-stride loops count past the end.
const COUNTED_PAST_THE_END: u32 = 1 << 16;

/// All files of kernels.
static MODULES: [&Module; 15] = [
    &adamw_update::MODULE,
    &attention_backward::MODULE,
    &attention_forward::MODULE,
    &bias_backward::MODULE,
    &classifier::MODULE,
    &dropout::MODULE,
    &encoder_backward::MODULE,
    &encoder_forward::MODULE,
    &gelu::MODULE,
    &global_norm::MODULE,
    &layernorm_backward::MODULE,
    &layernorm_forward::MODULE,
    &losses::MODULE,
    &matmul::MODULE,
    &sum_planes::MODULE,
];

/// Loads the files that a run launches from, so that the driver does not need memory for compiling them later. Drivers
/// load lazily by default: a kernel's code is copied to the GPU at its first launch. Only memory for that code is still
/// needed then.
///
/// # Errors
/// [`CudaError::Module`] if the driver cannot compile a file or is out of memory.
pub(super) fn load(device: &Device, multiplies: bool, drops: bool) -> Result<(), CudaError> {
    let is_launched = |module: &Module| match module.name {
        "matmul" => multiplies,
        "dropout" => drops,
        _ => true,
    };
    MODULES.into_iter().filter(|module| is_launched(module)).try_for_each(|module| device.load(module))
}

/// Converts a count to the kernels' type.
fn count(op: &'static str, what: &'static str, value: u64) -> Result<u32, CudaError> {
    let counted = u32::try_from(value).ok().filter(|&value| value < u32::MAX - COUNTED_PAST_THE_END);
    counted.ok_or(CudaError::Size { op, what, value, needed: "below 2^32 - 2^16" })
}

/// Divides a number of elements by 8, for kernels that move 8 elements at once.
fn eights(op: &'static str, what: &'static str, value: u64) -> Result<u64, CudaError> {
    if value.is_multiple_of(EIGHT) {
        return Ok(value / EIGHT);
    }
    Err(CudaError::Size { op, what, value, needed: "a multiple of 8" })
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn every_file_of_kernels_is_loaded() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("ptx");
        let files = fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file").path());
        let mut names: Vec<String> = files
            .filter(|path| path.extension().is_some_and(|extension| extension == "ptx"))
            .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
            .collect();
        names.sort();
        assert_eq!(names, MODULES.map(|module| module.name));
    }

    #[test]
    fn counts_leave_room_past_the_end() {
        assert_eq!(count("op", "N", 5).expect("few"), 5);
        for value in [u64::from(u32::MAX) - (1 << 16), u64::from(u32::MAX), 1 << 40] {
            let error = count("op", "N", value).expect_err("too many");
            assert_eq!(error.to_string(), format!("op: N is {value}, and has to be below 2^32 - 2^16"));
        }
    }
}
