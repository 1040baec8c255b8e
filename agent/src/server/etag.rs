//! Tags of what is sent, by which a client says what it has (RFC 9110, section 8.8.3).

use axum::http::{HeaderMap, HeaderValue, header::HeaderName};

/// A strong tag, with its quotes. Half of a hash is more than enough to tell apart what one program has.
pub fn strong(hash: impl Into<[u8; 32]>) -> HeaderValue {
    let digits: String = hash.into()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    HeaderValue::try_from(format!("\"{digits}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

/// Whether a list of tags, in the headers of that name, has this one, or all. A weak tag is as good where nothing is put
/// together of parts.
pub fn names(request: &HeaderMap, list: &HeaderName, etag: &HeaderValue, is_weak_enough: bool) -> bool {
    let values = request.get_all(list).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).any(|tag| {
        let tag = if is_weak_enough { tag.strip_prefix("W/").unwrap_or(tag) } else { tag };
        tag == "*" || tag.as_bytes() == etag.as_bytes()
    })
}
