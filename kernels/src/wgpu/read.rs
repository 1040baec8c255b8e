//! Reads results from the GPU: a future that completes when the buffer is mapped.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

use super::{Gpu, GpuError};

/// State shared by a callback and its future: the value and the waker.
#[derive(Debug)]
struct Readback<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

/// A future of the value that a callback receives.
#[derive(Debug)]
struct CallbackFuture<T>(Arc<Mutex<Readback<T>>>);

impl<T> CallbackFuture<T> {
    /// Creates the future, and the callback that completes it.
    fn new() -> (Self, impl FnOnce(T)) {
        let readback = Arc::new(Mutex::new(Readback { value: None, waker: None }));
        let teller = Arc::clone(&readback);
        let tell = move |value| {
            let mut readback = teller.lock().unwrap_or_else(PoisonError::into_inner);
            readback.value = Some(value);
            if let Some(waker) = readback.waker.take() {
                waker.wake();
            }
        };
        (Self(readback), tell)
    }
}

impl<T> Future for CallbackFuture<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut readback = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match readback.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                readback.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Reads the first bytes of a mappable buffer after all previously submitted work.
pub(super) async fn read(gpu: &Gpu, buffer: &wgpu::Buffer, bytes: u64) -> Result<Vec<u8>, GpuError> {
    let slice = buffer.slice(..bytes);
    let (telling, tell) = CallbackFuture::new();
    slice.map_async(wgpu::MapMode::Read, tell);
    wait(gpu)?;
    let mapped = telling.await;
    gpu.check()?;
    mapped.map_err(|error| GpuError::DeviceLost { reason: error.to_string() })?;
    let view = slice.get_mapped_range().map_err(|error| GpuError::Refused { reason: error.to_string() })?;
    let copy = view.to_vec();
    drop(view);
    buffer.unmap();
    Ok(copy)
}

/// A browser calls the callback by itself; natively the device must be polled.
#[cfg(target_arch = "wasm32")]
fn wait(gpu: &Gpu) -> Result<(), GpuError> {
    gpu.check()
}

#[cfg(not(target_arch = "wasm32"))]
fn wait(gpu: &Gpu) -> Result<(), GpuError> {
    let waited = gpu.device.poll(wgpu::PollType::wait_indefinitely());
    gpu.check()?;
    waited.map(drop).map_err(|error| GpuError::DeviceLost { reason: error.to_string() })
}

/// Waits for a future of the engine, which natively is ready when first polled. Unsuitable for other futures: it spins.
#[cfg(not(target_arch = "wasm32"))]
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::yield_now();
    }
}
