//! CORS responses for foreign pages that the owner allows by `--allow-origin`.
//!
//! Other origins get no CORS headers. An allowed page still needs a token, because the server ignores cookies and all
//! other credentials that a browser sends by itself.
//!
//! `CorsLayer` of tower-http answers each `OPTIONS` request by 200 itself, also those of foreign origins, which [`host`]
//! and the routes have to refuse.
//!
//! [`host`]: super::host

use std::sync::Arc;

use axum::{
    extract::{Request, State as Extract},
    http::{HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{State, error::is_for_programs};

/// The preflight header of a page on the internet that accesses a private network.
const REQUEST_PRIVATE: HeaderName = HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE: HeaderName = HeaderName::from_static("access-control-allow-private-network");

/// The methods and headers that an allowed page may send.
const ALLOWED: [(HeaderName, &str); 3] = [
    (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, PUT, POST, DELETE"),
    (header::ACCESS_CONTROL_ALLOW_HEADERS, "authorization, content-type, if-match, if-none-match, if-range, range"),
    (header::ACCESS_CONTROL_MAX_AGE, "600"),
];

/// Middleware that adds CORS headers for allowed pages and answers preflight requests.
pub async fn share(Extract(state): Extract<Arc<State>>, request: Request, next: Next) -> Response {
    let origin = request.headers().get(header::ORIGIN).cloned().filter(|origin| {
        is_for_programs(request.uri().path()) && origin.to_str().is_ok_and(|origin| state.hosts.is_allowed(origin))
    });
    let Some(origin) = origin else { return next.run(request).await };
    let asks =
        request.method() == Method::OPTIONS && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let asks_private = request.headers().contains_key(REQUEST_PRIVATE);
    let mut response = if asks { StatusCode::NO_CONTENT.into_response() } else { next.run(request).await };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    // `etag` is needed to change settings, the request's ID to report an error, and the other headers to resume a
    // download of a checkpoint.
    let exposed = HeaderValue::from_static("accept-ranges, content-length, content-range, etag, x-request-id");
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    if asks {
        for (name, value) in ALLOWED {
            headers.insert(name, HeaderValue::from_static(value));
        }
        if asks_private {
            headers.insert(ALLOW_PRIVATE, HeaderValue::from_static("true"));
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use crate::{assets::Assets, host::HostOptions, tests::talk::Server};

    #[tokio::test]
    async fn an_allowed_page_reads_answers_and_another_does_not() {
        let given = HostOptions { origins: vec!["https://page.example".to_owned()], ..HostOptions::default() };
        let server = Server::given(Assets::default(), given).await;
        let bearer = format!("Authorization: Bearer {}", server.place.view);
        let own = server.origin();
        for (origin, status, shared) in [
            ("https://page.example", 200, "https://page.example"),
            ("https://page.example.evil.example", 403, ""),
            ("http://page.example", 403, ""),
            (own.as_str(), 200, ""),
        ] {
            let answer = server.request("GET", "/api/rig", &[&bearer, &format!("Origin: {origin}")]).await;
            assert_eq!((answer.status, answer.header("access-control-allow-origin")), (status, shared), "{origin}");
            assert_eq!(answer.header("access-control-allow-credentials"), "");
            let exposes = answer.header("access-control-expose-headers").contains("x-request-id");
            assert_eq!(exposes, !shared.is_empty(), "{origin}");
        }
        let asks = ["Origin: https://page.example", "Access-Control-Request-Method: PUT"];
        let answer = server.request("OPTIONS", "/api/settings", &asks).await;
        assert_eq!((answer.status, answer.header("access-control-allow-methods")), (204, "GET, PUT, POST, DELETE"));
        assert_eq!(answer.header("access-control-allow-private-network"), "");
        // A refusal is readable too, and a request without a token gets nothing else.
        let answer = server.request("GET", "/api/rig", &asks[..1]).await;
        assert_eq!((answer.status, answer.header("access-control-allow-origin")), (401, "https://page.example"));
        let host = server.address.to_string();
        assert_eq!(server.upgrade("/ws", &host, &asks[..1]).await.status, 101);
        assert_eq!(server.upgrade("/ws", &host, &["Origin: https://other.example"]).await.status, 403);
        server.stop().await;
    }
}
