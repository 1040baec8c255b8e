//! Entity tags and conditional requests (RFC 9110, sections 8.8.3 and 13.1).

use axum::http::HeaderMap;
use headers::{ETag, HeaderMapExt as _, IfNoneMatch};

/// Returns a strong entity tag from the first 16 bytes of a hash.
pub fn strong(hash: impl Into<[u8; 32]>) -> ETag {
    let digits: String = hash.into()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\"{digits}\"").parse().expect("quoted digits are an entity tag")
}

/// Returns whether the client has the content of a tag, because `If-None-Match` names it.
pub fn is_cached(request: &HeaderMap, etag: &ETag) -> bool {
    request.typed_get::<IfNoneMatch>().is_some_and(|condition| !condition.precondition_passes(etag))
}
