//! What the server says where it does not give what was asked for. Only here does a reason become a status.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};

use super::{assets::AssetError, host::HostError};

/// A refusal as it is sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    status: StatusCode,
    /// For programs: stable, unlike the words.
    code: &'static str,
    /// For people.
    message: String,
}

impl From<HostError> for Refusal {
    fn from(error: HostError) -> Self {
        let (status, code) = match error {
            HostError::Unclear => (StatusCode::BAD_REQUEST, "unclear_host"),
            HostError::Foreign { .. } => (StatusCode::FORBIDDEN, "foreign_host"),
        };
        Self { status, code, message: error.to_string() }
    }
}

impl From<AssetError> for Refusal {
    fn from(error: AssetError) -> Self {
        let (status, code) = match error {
            AssetError::Missing => (StatusCode::NOT_FOUND, "not_found"),
            AssetError::NoPage => (StatusCode::SERVICE_UNAVAILABLE, "no_page"),
            AssetError::Method => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            AssetError::NoEncoding => (StatusCode::NOT_ACCEPTABLE, "no_encoding"),
        };
        Self { status, code, message: error.to_string() }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self { status, code, message } = self;
        let reason = status.canonical_reason().unwrap_or("Refused");
        let message = escaped(&message);
        let page = format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{reason} · Headroom</title>\n\
             <h1>{reason}</h1>\n<p>{message}</p>\n<p><small>{} {code}</small></p>\n",
            status.as_u16()
        );
        let mut response = (status, page).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        response
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
