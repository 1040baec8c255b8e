//! The machine's GPUs, as the driver describes them before one is opened.

use headroom_planner::hardware::ComputeCapability;

use super::{
    calls::{self, GpuAttribute, GpuHandle},
    driver::Driver,
    error::CudaError,
    requirements::NEEDED_CAPABILITY,
};

/// A GPU, or a MIG instance of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// The driver's index: fastest GPU first, limited to `CUDA_VISIBLE_DEVICES`. NVML's index may differ.
    pub index: u32,
    /// Product name.
    pub name: String,
    /// UUID as NVML formats it, `GPU-…`; it maps the driver's index to NVML's.
    pub uuid: String,
    /// Compute capability.
    pub capability: ComputeCapability,
    /// Total memory in bytes.
    pub total_bytes: u64,
    pub multiprocessors: u32,
    /// Maximum shared memory per block in bytes, for kernels that opt in to more than the default 48 KiB.
    pub shared_bytes_max: u64,
}

impl Gpu {
    pub(super) fn read(index: u32, handle: GpuHandle) -> Result<Self, CudaError> {
        Ok(Self {
            index,
            name: handle.name()?,
            uuid: uuid(handle.uuid()?),
            capability: ComputeCapability {
                major: number(handle.attribute(GpuAttribute::CapabilityMajor)?),
                minor: number(handle.attribute(GpuAttribute::CapabilityMinor)?),
            },
            total_bytes: handle.total_bytes()?,
            multiprocessors: handle.attribute(GpuAttribute::Multiprocessors)?,
            shared_bytes_max: u64::from(handle.attribute(GpuAttribute::SharedBytesMax)?),
        })
    }

    /// Checks that the kernels support this GPU.
    ///
    /// # Errors
    /// [`CudaError::GpuTooOld`] if the capability is below [`NEEDED_CAPABILITY`].
    pub fn check(&self) -> Result<(), CudaError> {
        if self.capability < NEEDED_CAPABILITY {
            return Err(CudaError::GpuTooOld { name: self.name.clone(), capability: self.capability });
        }
        Ok(())
    }
}

/// Part of a compute capability.
fn number(attribute: u32) -> u8 {
    u8::try_from(attribute).unwrap_or(u8::MAX)
}

/// Lists the GPUs visible to the driver, including unsupported ones.
///
/// # Errors
/// The driver is missing or too old, or no GPU is visible.
pub fn gpus() -> Result<Vec<Gpu>, CudaError> {
    Driver::get()?;
    let n_gpus = calls::n_gpus()?;
    let gpus: Vec<_> = (0..n_gpus).map(|index| Gpu::read(index, GpuHandle::get(index)?)).collect::<Result<_, _>>()?;
    if gpus.is_empty() { Err(CudaError::NoGpu) } else { Ok(gpus) }
}

pub(super) fn gpu(index: u32) -> Result<(Gpu, GpuHandle), CudaError> {
    let n_gpus = calls::n_gpus()?;
    if n_gpus == 0 {
        return Err(CudaError::NoGpu);
    }
    if index >= n_gpus {
        return Err(CudaError::NoSuchGpu { index, n_gpus });
    }
    let handle = GpuHandle::get(index)?;
    Ok((Gpu::read(index, handle)?, handle))
}

/// Formats a UUID as NVML and nvidia-smi do.
fn uuid(bytes: [u8; 16]) -> String {
    let mut text = "GPU".to_owned();
    for (place, byte) in bytes.iter().enumerate() {
        if matches!(place, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text += &format!("{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_reads_as_nvml_writes_it() {
        let bytes = [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 0, 1, 2, 3, 4, 5, 6, 7];
        assert_eq!(uuid(bytes), "GPU-12345678-9abc-def0-0001-020304050607");
    }
}
