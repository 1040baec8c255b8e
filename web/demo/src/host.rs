//! The one place that knows the browser: messages, time, files, the network, and the browser's regular expressions.

use std::ops::Range;

use headroom_shared::demo::Tell;
use js_sys::{ArrayBuffer, Promise, Reflect, RegExp, Uint8Array};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{Blob, DedicatedWorkerGlobalScope, File, Response};

fn scope() -> DedicatedWorkerGlobalScope {
    js_sys::global().unchecked_into()
}

/// Tells the page.
pub fn tell(tell: &Tell) {
    if let Ok(json) = serde_json::to_string(tell) {
        // A page that is gone hears nothing.
        drop(scope().post_message(&JsValue::from_str(&json)));
    }
}

/// Milliseconds of the worker's clock.
pub fn now_millis() -> f64 {
    scope().performance().map_or(0.0, |performance| performance.now())
}

/// Lets the browser deliver messages, and waits.
pub async fn pause(millis: u32) {
    let promise = Promise::new(&mut |resolve, _| {
        let millis = i32::try_from(millis).unwrap_or(i32::MAX);
        drop(scope().set_timeout_with_callback_and_timeout_and_arguments_0(&resolve, millis));
    });
    drop(JsFuture::from(promise).await);
}

/// Why there is no WebGPU to ask, where the browser has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoWebGpu {
    /// Browsers give it to pages over https and from this machine only.
    NotSecure,
    /// The browser does not know it, or it is switched off.
    NotThere,
}

/// Whether the browser has WebGPU at all.
pub fn webgpu() -> Result<(), NoWebGpu> {
    let gpu = Reflect::get(&scope().navigator(), &JsValue::from_str("gpu")).unwrap_or(JsValue::UNDEFINED);
    match (gpu.is_undefined() || gpu.is_null(), scope().is_secure_context()) {
        (false, _) => Ok(()),
        (true, false) => Err(NoWebGpu::NotSecure),
        (true, true) => Err(NoWebGpu::NotThere),
    }
}

/// The machine's memory, where the browser says it and is not at the end of its scale.
pub fn machine_bytes() -> Option<u64> {
    /// Browsers round down to a power of two, and say this for all that is beyond.
    const GIB_MAX: f64 = 8.0;
    let gib = Reflect::get(&scope().navigator(), &JsValue::from_str("deviceMemory")).ok()?.as_f64()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 8 GiB, and checked")]
    (gib > 0.0 && gib < GIB_MAX).then_some((gib * 2.0 * 1_073_741_824.0) as u64)
}

/// Bytes to read from: a file that a person chose, or one that was fetched.
#[derive(Debug)]
pub enum Data {
    /// It stays where it is; pieces are read.
    Chosen(Blob),
    /// All of it.
    Fetched(Vec<u8>),
}

impl Data {
    /// A chosen file.
    pub fn of_file(file: &File) -> Self {
        Self::Chosen(file.clone().unchecked_into())
    }

    /// What lies at an address of ours.
    pub async fn fetch(address: &str) -> Result<Self, String> {
        let said = |error: JsValue| words(&error);
        let answer = JsFuture::from(scope().fetch_with_str(address)).await.map_err(said)?;
        let answer: Response = answer.unchecked_into();
        if !answer.ok() {
            return Err(format!("{} {}", answer.status(), answer.status_text()));
        }
        let buffer = JsFuture::from(answer.array_buffer().map_err(said)?).await.map_err(said)?;
        Ok(Self::Fetched(Uint8Array::new(&buffer).to_vec()))
    }

    /// How many.
    pub fn bytes(&self) -> u64 {
        match self {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a file's length is whole")]
            Self::Chosen(blob) => blob.size() as u64,
            Self::Fetched(bytes) => bytes.len() as u64,
        }
    }

    /// Some of them; fewer where the file ends.
    pub async fn read(&self, range: Range<u64>) -> Result<Vec<u8>, String> {
        match self {
            Self::Chosen(blob) => {
                let said = |error: JsValue| words(&error);
                let slice = blob.slice_with_f64_and_f64(range.start as f64, range.end as f64).map_err(said)?;
                let buffer: ArrayBuffer = JsFuture::from(slice.array_buffer()).await.map_err(said)?.unchecked_into();
                Ok(Uint8Array::new(&buffer).to_vec())
            }
            Self::Fetched(bytes) => {
                let at = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
                Ok(bytes.get(at(range.start)..at(range.end)).unwrap_or_default().to_vec())
            }
        }
    }
}

/// What an exception says.
fn words(error: &JsValue) -> String {
    error.dyn_ref::<js_sys::Error>().map_or_else(|| format!("{error:?}"), |error| String::from(error.message()))
}

/// The matches of a regular expression, by the browser's engine: a second one would be half as large as this program.
pub fn matches(pattern: &str, text: &str) -> Vec<String> {
    let found = js_sys::JsString::from(text).match_(&RegExp::new(pattern, "gu"));
    let list = found.map(|found| js_sys::Array::from(&found)).unwrap_or_default();
    list.iter().filter_map(|piece| piece.as_string()).collect()
}
