//! The headers that every answer carries, a refusal too.

use axum::{
    http::{HeaderName, HeaderValue, header},
    response::Response,
};

/// Names with their values. `wasm-unsafe-eval` compiles WebAssembly and nothing else; `data:` is the page's icon.
const STRICT: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; connect-src 'self'; \
         img-src 'self' data:; base-uri 'self'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Adds them.
pub async fn add(mut response: Response) -> Response {
    for (name, value) in STRICT {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
