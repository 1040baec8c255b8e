//! What leptos' server functions ask of wasm-streams, and nothing behind it.
//!
//! leptos brings its client for server functions along, and that the real crate, whose classes are exported to JavaScript
//! and so stay in every program: 15 KB of ours. This page has no server functions, so nobody ever makes a stream.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures_core::Stream;
use wasm_bindgen::{JsCast, JsValue};

/// A stream of the browser.
pub struct ReadableStream(web_sys::ReadableStream);

impl ReadableStream {
    /// Of one that is there.
    #[must_use]
    pub fn from_raw(raw: web_sys::ReadableStream) -> Self {
        Self(raw)
    }

    /// Of a stream of Rust's: none, and the stream is dropped.
    pub fn from_stream<S: Stream<Item = Result<JsValue, JsValue>> + 'static>(stream: S) -> Self {
        drop(stream);
        Self(JsValue::NULL.unchecked_into())
    }

    /// The browser's own.
    #[must_use]
    pub fn into_raw(self) -> web_sys::ReadableStream {
        self.0
    }

    /// As a stream of Rust's: one that has ended.
    #[must_use]
    pub fn into_stream(self) -> Ended {
        Ended
    }
}

/// A stream without items.
pub struct Ended;

impl Stream for Ended {
    type Item = Result<JsValue, JsValue>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(None)
    }
}
