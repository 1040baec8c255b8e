//! Copy bandwidth of a device: the upper bound for engines that read every weight per token.

use std::time::Instant;

use super::{Gpu, GpuError};

/// Size of each buffer in bytes.
const SIZE: u64 = 64 << 20;

/// Measures the bandwidth of a copy between two buffers in bytes per second, reads and writes added; the best of 8
/// runs.
///
/// # Errors
/// The device is out of memory for the buffers, or fails.
pub fn copy_bytes_per_second(gpu: &Gpu) -> Result<f64, GpuError> {
    let usage = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let buffer = || {
        let descriptor = wgpu::BufferDescriptor { label: None, size: SIZE, usage, mapped_at_creation: false };
        gpu.device.create_buffer(&descriptor)
    };
    let (from, to) = (buffer(), buffer());
    gpu.check()?;
    let mut best = f64::INFINITY;
    for _ in 0..8 {
        let mut encoder = gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.copy_buffer_to_buffer(&from, 0, &to, 0, SIZE);
        let start = Instant::now();
        gpu.queue.submit([encoder.finish()]);
        let waited = gpu.device.poll(wgpu::PollType::wait_indefinitely());
        gpu.check()?;
        waited.map_err(|error| GpuError::DeviceLost { reason: error.to_string() })?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(2.0 * SIZE as f64 / best)
}
