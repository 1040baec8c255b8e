//! Answers for foreign pages that the owner allows by `--allow-origin`, as browsers ask for it (CORS).
//!
//! Nobody else gets a word of it. An allowed page still needs a token: no cookie and nothing else that a browser would
//! send by itself counts here.

use std::sync::Arc;

use axum::{
    extract::{Request, State as Extract},
    http::{HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{State, error::is_for_programs};

/// What a browser asks before a page of the internet reaches an address at home.
const REQUEST_PRIVATE: HeaderName = HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE: HeaderName = HeaderName::from_static("access-control-allow-private-network");

/// What an allowed page may send.
const ALLOWED: [(HeaderName, &str); 3] = [
    (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, PUT, POST, DELETE"),
    (header::ACCESS_CONTROL_ALLOW_HEADERS, "authorization, content-type, if-match, if-none-match, if-range, range"),
    (header::ACCESS_CONTROL_MAX_AGE, "600"),
];

/// Tells a browser that an allowed page may read the answer, and answers its question beforehand.
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
    // What a change of the settings has to name, and what a part of a checkpoint is part of.
    let exposed = HeaderValue::from_static("accept-ranges, content-length, content-range, etag");
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
    use crate::server::{assets::Assets, host::Given, tests::talk::Server};

    #[tokio::test]
    async fn an_allowed_page_reads_answers_and_another_does_not() {
        let given = Given { origins: vec!["https://page.example".to_owned()], ..Given::default() };
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
        }
        let asks = ["Origin: https://page.example", "Access-Control-Request-Method: PUT"];
        let answer = server.request("OPTIONS", "/api/settings", &asks).await;
        assert_eq!((answer.status, answer.header("access-control-allow-methods")), (204, "GET, PUT, POST, DELETE"));
        assert_eq!(answer.header("access-control-allow-private-network"), "");
        // A refusal can be read too, and without a token there is no more than that.
        let answer = server.request("GET", "/api/rig", &asks[..1]).await;
        assert_eq!((answer.status, answer.header("access-control-allow-origin")), (401, "https://page.example"));
        let host = server.address.to_string();
        assert_eq!(server.upgrade("/ws", &host, &asks[..1]).await.status, 101);
        assert_eq!(server.upgrade("/ws", &host, &["Origin: https://other.example"]).await.status, 403);
        server.stop().await;
    }
}
