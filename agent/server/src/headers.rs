//! Security headers of all responses, including refusals.

use axum::{
    extract::Request,
    http::{HeaderName, HeaderValue, header},
    middleware::Next,
    response::Response,
};

/// The headers of all responses. `wasm-unsafe-eval` permits compiling WebAssembly only.
const STRICT: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; connect-src 'self'; \
         img-src 'self'; manifest-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (CROSS_ORIGIN_RESOURCE_POLICY, "same-origin"),
];

/// The header that controls which sites may load a response.
const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
/// The page that other sites may embed. It controls nothing and has no data of this machine. It also embeds itself as a
/// preview of its output. The server has it under both names.
const EMBEDDABLE: [&str; 2] = ["/embed.html", "/embed"];
const EMBEDDABLE_POLICY: &str = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; \
     connect-src 'self'; img-src 'self'; frame-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors *";
/// The script that embeds that page in an iframe.
const EMBEDDING: &str = "/headroom-calculator.js";
/// The folder of the images that other sites show with a link to a page.
const PREVIEWS: &str = "/previews/";

/// Middleware that adds the headers.
pub async fn add(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let mut response = next.run(request).await;
    // Refusals must not be embedded.
    let is_given = !response.status().is_client_error() && !response.status().is_server_error();
    let headers = response.headers_mut();
    for (name, value) in STRICT {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if is_given && (EMBEDDABLE.contains(&&*path) || path == EMBEDDING || path.starts_with(PREVIEWS)) {
        headers.insert(CROSS_ORIGIN_RESOURCE_POLICY, HeaderValue::from_static("cross-origin"));
    }
    if is_given && EMBEDDABLE.contains(&&*path) {
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(EMBEDDABLE_POLICY));
    }
    response
}
