//! Reading what the GPU computed: a future that is ready once the buffer is mapped.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

use super::{Gpu, GpuError};

/// What a callback tells, and who waits for it.
#[derive(Debug)]
struct Told<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

/// A value that a callback will tell.
#[derive(Debug)]
struct Telling<T>(Arc<Mutex<Told<T>>>);

impl<T> Telling<T> {
    /// The future, and the callback that makes it ready.
    fn new() -> (Self, impl FnOnce(T)) {
        let told = Arc::new(Mutex::new(Told { value: None, waker: None }));
        let teller = Arc::clone(&told);
        let tell = move |value| {
            let mut told = teller.lock().unwrap_or_else(PoisonError::into_inner);
            told.value = Some(value);
            if let Some(waker) = told.waker.take() {
                waker.wake();
            }
        };
        (Self(told), tell)
    }
}

impl<T> Future for Telling<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match told.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                told.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// The first bytes of a mappable buffer, after everything that was submitted before.
pub(super) async fn read(gpu: &Gpu, buffer: &wgpu::Buffer, bytes: u64) -> Result<Vec<u8>, GpuError> {
    let slice = buffer.slice(..bytes);
    let (telling, tell) = Telling::new();
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

/// A browser calls back by itself; natively someone has to look.
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

/// Waits for the engine's futures, which natively are ready when they are asked. Not for other futures: it spins.
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
