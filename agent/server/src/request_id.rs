//! Request IDs. Each response has its ID in the header `x-request-id`, and each log event of the request or of its
//! WebSocket session has the same ID. The body of a server error has it too, so that users can quote it.
//!
//! The log has the matched route instead of the path, because paths and queries may contain anything that a client sent.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    extract::{MatchedPath, Request},
    http::{HeaderName, HeaderValue, Method},
    middleware::Next,
    response::Response,
};
use tracing::Instrument;

use super::Peer;
use headroom_agent_core::logging::HTTP;

/// The header of each response.
pub const HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// The ID of a request: 64 bits without a visible order, so that it does not reveal the number of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(u64);

impl RequestId {
    fn next() -> Self {
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        static N_REQUESTS: AtomicU64 = AtomicU64::new(0);
        Self(KEY.hash_one(N_REQUESTS.fetch_add(1, Ordering::Relaxed)))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

/// Middleware that gives a request its ID and logs its outcome.
pub async fn assign(mut request: Request, next: Next) -> Response {
    let id = RequestId::next();
    request.extensions_mut().insert(id);
    let span = {
        // Files of the page have no route of their own.
        let route = request.extensions().get::<MatchedPath>().map_or("page", MatchedPath::as_str);
        let peer = request.extensions().get::<Peer>().map(|Peer(address)| tracing::field::display(address));
        tracing::error_span!(target: HTTP, "request", %id, method = method(request.method()), route, peer)
    };
    let answered = async {
        let mut response = next.run(request).await;
        tracing::debug!(target: HTTP, status = response.status().as_u16(), "answered");
        if let Ok(value) = HeaderValue::try_from(id.to_string()) {
            response.headers_mut().insert(HEADER, value);
        }
        response
    };
    answered.instrument(span).await
}

/// Returns the name of a standard method. A client can invent others.
fn method(method: &Method) -> &'static str {
    const KNOWN: [(&Method, &str); 7] = [
        (&Method::GET, "GET"),
        (&Method::HEAD, "HEAD"),
        (&Method::POST, "POST"),
        (&Method::PUT, "PUT"),
        (&Method::DELETE, "DELETE"),
        (&Method::OPTIONS, "OPTIONS"),
        (&Method::PATCH, "PATCH"),
    ];
    KNOWN.iter().find(|(known, _)| *known == method).map_or("other", |(_, name)| name)
}
