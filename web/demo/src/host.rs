//! The worker's only interface to the browser: messages, time, files, the network and regular expressions.

use std::ops::Range;

use headroom_protocol::demo::WorkerResponse;
use js_sys::{ArrayBuffer, Promise, Reflect, RegExp, Uint8Array};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{Blob, DedicatedWorkerGlobalScope, File, ReadableStreamDefaultReader, Response};

fn scope() -> DedicatedWorkerGlobalScope {
    js_sys::global().unchecked_into()
}

/// Sends a message to the page.
pub fn tell(tell: &WorkerResponse) {
    if let Ok(json) = serde_json::to_string(tell) {
        // A closed page receives no messages.
        drop(scope().post_message(&JsValue::from_str(&json)));
    }
}

/// Returns the worker's clock in milliseconds.
pub fn now_millis() -> f64 {
    scope().performance().map_or(0.0, |performance| performance.now())
}

/// Lets the browser deliver messages and waits `millis` milliseconds.
pub async fn pause(millis: u32) {
    let promise = Promise::new(&mut |resolve, _| {
        let millis = i32::try_from(millis).unwrap_or(i32::MAX);
        drop(scope().set_timeout_with_callback_and_timeout_and_arguments_0(&resolve, millis));
    });
    drop(JsFuture::from(promise).await);
}

/// The reason why the browser offers no WebGPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoWebGpu {
    /// The page is not secure. Browsers offer WebGPU only over HTTPS and on localhost.
    NotSecure,
    /// The browser does not support WebGPU, or it is disabled.
    NotThere,
}

/// Checks that the browser has WebGPU.
///
/// # Errors
///
/// Returns the reason if it is missing.
pub fn webgpu() -> Result<(), NoWebGpu> {
    let gpu = Reflect::get(&scope().navigator(), &JsValue::from_str("gpu")).unwrap_or(JsValue::UNDEFINED);
    match (gpu.is_undefined() || gpu.is_null(), scope().is_secure_context()) {
        (false, _) => Ok(()),
        (true, false) => Err(NoWebGpu::NotSecure),
        (true, true) => Err(NoWebGpu::NotThere),
    }
}

/// Returns an estimate of the machine's memory in bytes. It is `None` if the browser reports no value or its maximum.
pub fn machine_bytes() -> Option<u64> {
    /// The largest value that browsers report, also for machines with more. They round down to a power of two.
    const GIB_MAX: f64 = 8.0;
    let gib = Reflect::get(&scope().navigator(), &JsValue::from_str("deviceMemory")).ok()?.as_f64()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 8 GiB, and checked")]
    (gib > 0.0 && gib < GIB_MAX).then_some((gib * 2.0 * 1_073_741_824.0) as u64)
}

/// A source of bytes: a file selected by the user, or a fetched one.
#[derive(Debug)]
pub enum Data {
    /// A selected file, of which only the requested ranges are read.
    Chosen(Blob),
    /// A fetched file, held in memory.
    Fetched(Vec<u8>),
}

impl Data {
    /// Creates a source that reads a selected file.
    pub fn of_file(file: &File) -> Self {
        Self::Chosen(file.clone().unchecked_into())
    }

    /// Fetches a file from the page's own origin.
    ///
    /// `progress` receives the number of bytes that have arrived and the total. The total is 0 if the server does not
    /// send it.
    pub async fn fetch(address: &str, progress: impl Fn(u64, u64)) -> Result<Self, String> {
        let said = |error: JsValue| words(&error);
        let answer = JsFuture::from(scope().fetch_with_str(address)).await.map_err(said)?;
        let answer: Response = answer.unchecked_into();
        if !answer.ok() {
            return Err(format!("{} {}", answer.status(), answer.status_text()));
        }
        // The length of a compressed body differs from the number of bytes that arrive here.
        let header = |name: &str| answer.headers().get(name).ok().flatten();
        let length = header("content-length").filter(|_| header("content-encoding").is_none());
        let all = length.and_then(|length| length.parse().ok()).unwrap_or(0);
        let body = answer.body().ok_or("the answer has no body")?;
        let reader: ReadableStreamDefaultReader = body.get_reader().unchecked_into();
        let mut bytes = Vec::new();
        loop {
            let piece = JsFuture::from(reader.read()).await.map_err(said)?;
            let piece = Reflect::get(&piece, &JsValue::from_str("value")).map_err(said)?;
            if piece.is_undefined() {
                return Ok(Self::Fetched(bytes));
            }
            bytes.extend_from_slice(&Uint8Array::new(&piece).to_vec());
            progress(bytes.len() as u64, all);
        }
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a file's length is whole")]
            Self::Chosen(blob) => blob.size() as u64,
            Self::Fetched(bytes) => bytes.len() as u64,
        }
    }

    /// Reads a range of bytes. The result is shorter if the file ends within the range.
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

/// Returns the message of a JavaScript exception.
fn words(error: &JsValue) -> String {
    error.dyn_ref::<js_sys::Error>().map_or_else(|| format!("{error:?}"), |error| String::from(error.message()))
}

/// Returns all matches of a regular expression, found by the browser's engine. A bundled engine would make this program
/// half as large again.
pub fn matches(pattern: &str, text: &str) -> Vec<String> {
    let found = js_sys::JsString::from(text).match_(&RegExp::new(pattern, "gu"));
    let list = found.map(|found| js_sys::Array::from(&found)).unwrap_or_default();
    list.iter().filter_map(|piece| piece.as_string()).collect()
}
