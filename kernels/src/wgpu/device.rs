//! WebGPU adapter and device, opened with the default limits.

use std::sync::{Arc, Mutex, PoisonError};

use headroom_text as text;

use super::GpuError;

/// Requirements on the adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Whether to use a software adapter even if there is a GPU.
    pub software: bool,
    /// Whether to read half-precision weights through packed words even if the device supports f16.
    pub without_f16: bool,
    /// Whether to distribute work as on a GPU even if the adapter computes on the CPU; for tests.
    pub as_hardware: bool,
}

/// Errors that the device reported asynchronously.
#[derive(Debug, Default)]
struct DeviceErrors {
    lost: Option<String>,
    refused: Option<String>,
    out_of_memory: bool,
}

/// An open device. Clones refer to the same device.
#[derive(Clone, Debug)]
pub struct Gpu {
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    name: String,
    software: bool,
    as_hardware: bool,
    f16: bool,
    complaints: Arc<Mutex<DeviceErrors>>,
}

impl Gpu {
    /// Finds an adapter and opens it with WebGPU's default limits, and with f16 if supported.
    ///
    /// # Errors
    /// [`GpuError::NoAdapter`], [`GpuError::LimitTooSmall`], [`GpuError::DeviceRefused`].
    pub async fn request(request: Request) -> Result<Self, GpuError> {
        let instance = wgpu::Instance::default();
        let options = wgpu::RequestAdapterOptions {
            power_preference: wgpu::PowerPreference::HighPerformance,
            force_fallback_adapter: request.software,
            ..Default::default()
        };
        let adapter = instance.request_adapter(&options).await;
        let adapter = adapter.map_err(|error| GpuError::NoAdapter { reason: error.to_string() })?;
        let info = adapter.get_info();
        let limits = wgpu::Limits::default();
        check_limits(&limits, &adapter.limits())?;
        let f16 = adapter.features().contains(wgpu::Features::SHADER_F16) && !request.without_f16;
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("headroom"),
            required_features: if f16 { wgpu::Features::SHADER_F16 } else { wgpu::Features::empty() },
            required_limits: limits,
            ..Default::default()
        };
        let (device, queue) = adapter
            .request_device(&descriptor)
            .await
            .map_err(|error| GpuError::DeviceRefused { adapter: info.name.clone(), reason: error.to_string() })?;
        let complaints = listen(&device);
        let software = info.device_type == wgpu::DeviceType::Cpu;
        Ok(Self { device, queue, name: info.name, software, as_hardware: request.as_hardware, f16, complaints })
    }

    /// Name of the adapter; empty if the browser hides it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the adapter computes on the CPU.
    #[must_use]
    pub const fn is_software(&self) -> bool {
        self.software
    }

    /// Whether to distribute work for a CPU's vectors.
    pub(super) const fn wants_long_rows(&self) -> bool {
        self.software && !self.as_hardware
    }

    /// Whether the shaders can use f16.
    #[must_use]
    pub const fn has_f16(&self) -> bool {
        self.f16
    }

    /// The wgpu device, for tests and benchmarks of single kernels.
    #[must_use]
    pub const fn device(&self) -> &wgpu::Device {
        &self.device
    }

    /// The wgpu queue, for tests and benchmarks of single kernels.
    #[must_use]
    pub const fn queue(&self) -> &wgpu::Queue {
        &self.queue
    }

    /// Maximum size of a binding in bytes.
    pub(super) fn binding_bytes_max(&self) -> u64 {
        self.device.limits().max_storage_buffer_binding_size
    }

    /// Returns the errors reported since the last call; a loss is permanent.
    pub(super) fn check(&self) -> Result<(), GpuError> {
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = &complaints.lost {
            return Err(GpuError::DeviceLost { reason: reason.clone() });
        }
        if std::mem::take(&mut complaints.out_of_memory) {
            return Err(GpuError::MemoryFull);
        }
        complaints.refused.take().map_or(Ok(()), |reason| Err(GpuError::Refused { reason }))
    }

    /// Sets a callback for the loss of the device, which also detects a loss while nothing is computed.
    pub fn on_lost(&self, tell: impl Fn(&GpuError) + Send + 'static) {
        hear_loss(&self.device, Arc::clone(&self.complaints), tell);
    }

    /// Destroys the device; everything on it is lost.
    pub fn destroy(&self) {
        self.device.destroy();
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        // WebGPU's name of the reason, displayed like any other reason.
        complaints.lost.get_or_insert_with(|| format!("{:?}", wgpu::DeviceLostReason::Destroyed));
    }
}

fn check_limits(needed: &wgpu::Limits, available: &wgpu::Limits) -> Result<(), GpuError> {
    let mut result = Ok(());
    needed.check_limits_with_fail_fn(available, true, |limit, needed, available| {
        result =
            Err(GpuError::LimitTooSmall { what: text::verbatim("WebGPU"), limit: limit.into(), needed, available });
    });
    result
}

fn hear_loss(device: &wgpu::Device, complaints: Arc<Mutex<DeviceErrors>>, tell: impl Fn(&GpuError) + Send + 'static) {
    // A later callback replaces an earlier one; in browsers all are called.
    device.set_device_lost_callback(move |reason, message| {
        let mut complaints = complaints.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = complaints.lost.get_or_insert_with(|| format!("{reason:?}: {message}")).clone();
        drop(complaints);
        tell(&GpuError::DeviceLost { reason });
    });
}

/// Stores asynchronous errors until [`Gpu::check`], instead of ending the program.
fn listen(device: &wgpu::Device) -> Arc<Mutex<DeviceErrors>> {
    let complaints = Arc::new(Mutex::new(DeviceErrors::default()));
    hear_loss(device, Arc::clone(&complaints), |_| {});
    let of_errors = Arc::clone(&complaints);
    device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
        let mut complaints = of_errors.lock().unwrap_or_else(PoisonError::into_inner);
        match error {
            wgpu::Error::OutOfMemory { .. } => complaints.out_of_memory = true,
            other => {
                complaints.refused.get_or_insert_with(|| other.to_string());
            }
        }
    }));
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_reported_where_nothing_computes() {
        let gpu = crate::wgpu::block_on(Gpu::request(Request::default())).expect("a software driver at least");
        let (sender, receiver) = std::sync::mpsc::channel();
        gpu.on_lost(move |error| drop(sender.send(error.clone())));
        gpu.device.destroy();
        let poll = gpu.device.poll(wgpu::PollType::Poll);
        drop(poll);
        let error = receiver.recv_timeout(std::time::Duration::from_secs(10)).expect("it is reported");
        assert!(matches!(error, GpuError::DeviceLost { .. }), "{error}");
        assert_eq!(gpu.check(), Err(error));
    }

    #[test]
    fn a_limit_below_webgpus_own_is_named() {
        let needed = wgpu::Limits::default();
        check_limits(&needed, &needed).expect("as much as needed");
        let small = wgpu::Limits { max_storage_buffers_per_shader_stage: 4, ..wgpu::Limits::default() };
        let error = check_limits(&needed, &small).expect_err("less than needed");
        assert_eq!(
            error.to_string(),
            "WebGPU needs max_storage_buffers_per_shader_stage of 8, but the GPU has 4. The CPU does not have this limit."
        );
    }
}
