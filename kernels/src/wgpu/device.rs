//! The adapter and its device, asked for what every WebGPU device has and no more.

use std::sync::{Arc, Mutex, PoisonError};

use headroom_shared::text;

use super::GpuError;

/// What kind of adapter is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// A software adapter, though there may be a GPU.
    pub software: bool,
    /// Weights in half precision are read through packed words though the device may know f16.
    pub without_f16: bool,
    /// Work is shared among invocations as on hardware, though the adapter may compute on the CPU: for tests.
    pub as_hardware: bool,
}

/// What the device said unasked.
#[derive(Debug, Default)]
struct Complaints {
    lost: Option<String>,
    refused: Option<String>,
    out_of_memory: bool,
}

/// A device that computes. Clones are the same device.
#[derive(Clone, Debug)]
pub struct Gpu {
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    name: String,
    software: bool,
    as_hardware: bool,
    f16: bool,
    complaints: Arc<Mutex<Complaints>>,
}

impl Gpu {
    /// Finds an adapter and opens it with WebGPU's default limits, and f16 where it has that.
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

    /// The adapter's name; empty where the browser does not tell it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the adapter computes on the CPU.
    #[must_use]
    pub const fn is_software(&self) -> bool {
        self.software
    }

    /// Whether work is shared as suits a CPU's vectors.
    pub(super) const fn wants_long_rows(&self) -> bool {
        self.software && !self.as_hardware
    }

    /// Whether shaders know f16.
    #[must_use]
    pub const fn has_f16(&self) -> bool {
        self.f16
    }

    /// The device itself, for tests and benchmarks of single kernels.
    #[must_use]
    pub const fn device(&self) -> &wgpu::Device {
        &self.device
    }

    /// Its queue, for the same.
    #[must_use]
    pub const fn queue(&self) -> &wgpu::Queue {
        &self.queue
    }

    /// The most bytes of one binding.
    pub(super) fn binding_bytes_max(&self) -> u64 {
        self.device.limits().max_storage_buffer_binding_size
    }

    /// What the device said since it was last asked; once lost it stays lost.
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

    /// Has the loss of the device told when it happens, also where nothing computes that would find it out.
    pub fn on_lost(&self, tell: impl Fn(&GpuError) + Send + 'static) {
        hear_loss(&self.device, Arc::clone(&self.complaints), tell);
    }

    /// Ends the device; everything on it is lost.
    pub fn destroy(&self) {
        self.device.destroy();
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        // In the word that WebGPU has for it, which is quoted like any other.
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

fn hear_loss(device: &wgpu::Device, complaints: Arc<Mutex<Complaints>>, tell: impl Fn(&GpuError) + Send + 'static) {
    // The one that is set last is called; in browsers all are.
    device.set_device_lost_callback(move |reason, message| {
        let mut complaints = complaints.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = complaints.lost.get_or_insert_with(|| format!("{reason:?}: {message}")).clone();
        drop(complaints);
        tell(&GpuError::DeviceLost { reason });
    });
}

/// What the device says unasked is kept until someone asks, instead of ending the program.
fn listen(device: &wgpu::Device) -> Arc<Mutex<Complaints>> {
    let complaints = Arc::new(Mutex::new(Complaints::default()));
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
    fn a_loss_is_told_where_nothing_computes() {
        let gpu = crate::wgpu::block_on(Gpu::request(Request::default())).expect("a software driver at least");
        let (told, hears) = std::sync::mpsc::channel();
        gpu.on_lost(move |error| drop(told.send(error.clone())));
        gpu.device.destroy();
        let poll = gpu.device.poll(wgpu::PollType::Poll);
        drop(poll);
        let error = hears.recv_timeout(std::time::Duration::from_secs(10)).expect("it is told");
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
            "WebGPU needs max_storage_buffers_per_shader_stage of 8, and the GPU has 4. The engine on the CPU has no such limit."
        );
    }
}
