//! Refusals: error responses with their status codes. Only this module maps an error to a status.
//!
//! Pages receive HTML, and programs the protocol's JSON body. The path decides which, when the response leaves.

mod code;

use std::fmt::{self, Display};

use axum::{
    extract::Request,
    http::{HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use headroom_protocol::{PROTOCOL_VERSION, message::Message};
use headroom_text as text;
use serde_json::json;

use super::{
    access::error::AccessError,
    assets::AssetError,
    host::{HostError, OriginError},
    request_id::RequestId,
    secrets,
};
use crate::run_manager;
pub use code::ErrorCode;
use headroom_agent_core::{logging::HTTP, store};

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    status: StatusCode,
    /// A stable code for programs.
    code: ErrorCode,
    /// A message for people.
    message: Message,
}

impl ApiError {
    fn plain(status: StatusCode, code: ErrorCode, message: impl Into<String>) -> Self {
        Self { status, code, message: Message::plain(message) }
    }

    /// 400: the request is invalid.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::plain(StatusCode::BAD_REQUEST, ErrorCode::BadRequest, message)
    }

    /// 400: a token in the query, where servers would log it.
    pub fn token_in_query() -> Self {
        let message = "Cannot take a token from the address: servers log addresses, and browsers keep them. \
                       Send it as `Authorization: Bearer TOKEN`.";
        Self::plain(StatusCode::BAD_REQUEST, ErrorCode::TokenInQuery, message)
    }

    /// 401: the request has no token.
    pub fn no_token() -> Self {
        Self { status: StatusCode::UNAUTHORIZED, code: ErrorCode::NoToken, message: text::NEEDS_TOKEN.into() }
    }

    /// 403: the token lacks the required scope.
    pub fn scope() -> Self {
        Self { status: StatusCode::FORBIDDEN, code: ErrorCode::Scope, message: text::MAY_ONLY_LOOK.into() }
    }

    /// 404: an unknown route under `/api`.
    pub fn no_route() -> Self {
        let message = "Cannot find this address. /api/openapi.json lists all routes.";
        Self::plain(StatusCode::NOT_FOUND, ErrorCode::NotFound, message)
    }

    /// 405: the route exists, but not for this method.
    pub fn method() -> Self {
        let message = "Cannot use this method at this address. The header Allow lists those that it has.";
        Self::plain(StatusCode::METHOD_NOT_ALLOWED, ErrorCode::MethodNotAllowed, message)
    }

    /// 428: a change without `If-Match`.
    pub fn precondition_required() -> Self {
        let message = "Cannot change the settings: the request has no `If-Match`. Send the ETag of GET /api/settings, \
                       so that no other change is lost, or `If-Match: *` to replace any settings.";
        Self::plain(StatusCode::PRECONDITION_REQUIRED, ErrorCode::PreconditionRequired, message)
    }

    /// 412: a change of settings that were changed meanwhile.
    fn changed() -> Self {
        Self {
            status: StatusCode::PRECONDITION_FAILED,
            code: ErrorCode::Changed,
            message: text::SETTINGS_CHANGED_ELSEWHERE.into(),
        }
    }

    /// 404: the GPU does not exist; `message` lists the existing ones.
    pub fn no_gpu(message: impl Into<String>) -> Self {
        Self::plain(StatusCode::NOT_FOUND, ErrorCode::NoCard, message)
    }

    /// 404: the run has no checkpoint; `message` contains the reason.
    pub fn no_checkpoint(message: impl Into<Message>) -> Self {
        Self { status: StatusCode::NOT_FOUND, code: ErrorCode::NoCheckpoint, message: message.into() }
    }

    /// 412: a range of a checkpoint that was replaced meanwhile.
    pub fn checkpoint_changed() -> Self {
        Self {
            status: StatusCode::PRECONDITION_FAILED,
            code: ErrorCode::Changed,
            message: text::CHECKPOINT_REPLACED.into(),
        }
    }

    /// 416: a range outside of a file, or several ranges.
    pub fn range(bytes: u64) -> Self {
        let message = format!(
            "Cannot send this range: the file has {bytes} bytes. Send one range within them, as `Range: bytes=FIRST-LAST`."
        );
        Self::plain(StatusCode::RANGE_NOT_SATISFIABLE, ErrorCode::Range, message)
    }

    /// 503: too many checkpoint downloads.
    pub fn too_many_checkpoints() -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            code: ErrorCode::TooMany,
            message: text::TOO_MANY_CHECKPOINTS.into(),
        }
    }

    /// 413: the body is too long.
    pub fn too_large(bytes_max: usize) -> Self {
        let message = format!("The body has more than {bytes_max} bytes.");
        Self::plain(StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::TooLarge, message)
    }

    /// 408: the body did not arrive in time.
    pub fn too_late() -> Self {
        let message = "The body did not arrive in time.";
        Self::plain(StatusCode::REQUEST_TIMEOUT, ErrorCode::TooLate, message)
    }

    /// 503: too many viewers.
    pub fn too_many() -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            code: ErrorCode::TooMany,
            message: text::TOO_MANY_VIEWERS.into(),
        }
    }

    /// 503: too many requests in progress.
    pub fn busy() -> Self {
        let message = "Cannot answer now: the agent has too many requests in progress. Try again later.";
        Self::plain(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Busy, message)
    }

    /// 400: the request is not a WebSocket upgrade.
    pub fn no_upgrade() -> Self {
        let message = "Cannot answer without a WebSocket upgrade. Send GET with `Upgrade: websocket`, version 13.";
        Self::plain(StatusCode::BAD_REQUEST, ErrorCode::NoUpgrade, message)
    }

    /// 500: the server cannot produce its answer. Logs the cause, which the client does not receive.
    pub fn internal(cause: impl Display) -> Self {
        tracing::error!(target: HTTP, %cause, "cannot answer the request");
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            code: ErrorCode::Internal,
            message: text::ANSWER_UNFINISHED.into(),
        }
    }

    /// Logs the refusal. A client's error has no message in the log, because messages may quote what the client sent.
    pub fn log(&self) {
        let (status, code) = (self.status.as_u16(), self.code.name());
        match self.code {
            ErrorCode::AccessFile | ErrorCode::Folder | ErrorCode::History => {
                tracing::error!(target: HTTP, status, code, cause = %self, "cannot answer the request");
            }
            ErrorCode::BadToken | ErrorCode::BadCode | ErrorCode::ForeignHost | ErrorCode::ForeignOrigin => {
                tracing::info!(target: HTTP, status, code, "refused");
            }
            _ => tracing::debug!(target: HTTP, status, code, "refused"),
        }
    }

    /// Returns the ID if users should quote it, because the error is the server's.
    fn quoted(&self, id: Option<RequestId>) -> Option<RequestId> {
        id.filter(|_| self.status.is_server_error())
    }

    fn page(&self, id: Option<RequestId>) -> Response {
        let Self { status, code, message } = self;
        let id = self.quoted(id).map_or_else(String::new, |id| format!(" · request {id}"));
        let reason = status.canonical_reason().unwrap_or("Refused");
        let message = escaped(&message.en);
        let page = format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{reason} · Headroom</title>\n\
             <h1>{reason}</h1>\n<p>{message}</p>\n<p><small>{} {}{id}</small></p>\n",
            status.as_u16(),
            code.name(),
        );
        self.answer("text/html; charset=utf-8", page)
    }

    /// Returns a JSON response with the fields of the protocol's refusal.
    fn json(&self, id: Option<RequestId>) -> Response {
        let Message { en, text } = &self.message;
        let mut body = json!({ "code": self.code.name(), "message": en, "supported": [PROTOCOL_VERSION] });
        if let Some(text) = text {
            body["message_text"] = json!(text);
        }
        if let Some(id) = self.quoted(id) {
            body["request_id"] = json!(id.to_string());
        }
        self.answer("application/json", format!("{body}\n"))
    }

    fn answer(&self, content_type: &'static str, body: String) -> Response {
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        match self.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
            }
            _ => {}
        }
        response
    }
}

impl Display for ApiError {
    /// The message, for the log.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        secrets::text(&self.message.en).fmt(formatter)
    }
}

impl From<HostError> for ApiError {
    fn from(error: HostError) -> Self {
        let (status, code) = match error {
            HostError::Unclear => (StatusCode::BAD_REQUEST, ErrorCode::UnclearHost),
            HostError::Foreign { .. } => (StatusCode::FORBIDDEN, ErrorCode::ForeignHost),
        };
        Self::plain(status, code, error.to_string())
    }
}

impl IntoResponse for HostError {
    fn into_response(self) -> Response {
        ApiError::from(self).into_response()
    }
}

impl From<OriginError> for ApiError {
    fn from(error: OriginError) -> Self {
        let code = match error {
            OriginError::Missing => ErrorCode::MissingOrigin,
            OriginError::Foreign { .. } => ErrorCode::ForeignOrigin,
        };
        Self::plain(StatusCode::FORBIDDEN, code, error.to_string())
    }
}

impl From<AssetError> for ApiError {
    fn from(error: AssetError) -> Self {
        let (status, code) = match error {
            AssetError::Missing => (StatusCode::NOT_FOUND, ErrorCode::NotFound),
            AssetError::NoPage => (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::NoPage),
            AssetError::Method => (StatusCode::METHOD_NOT_ALLOWED, ErrorCode::MethodNotAllowed),
            AssetError::NoEncoding => (StatusCode::NOT_ACCEPTABLE, ErrorCode::NoEncoding),
        };
        Self::plain(status, code, error.to_string())
    }
}

impl IntoResponse for AssetError {
    fn into_response(self) -> Response {
        let mut response = ApiError::from(self).into_response();
        if self == Self::Method {
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        response
    }
}

impl From<AccessError> for ApiError {
    fn from(error: AccessError) -> Self {
        let message = error.text().into();
        let (status, code) = match error {
            AccessError::BadToken => (StatusCode::UNAUTHORIZED, ErrorCode::BadToken),
            AccessError::BadCode => (StatusCode::FORBIDDEN, ErrorCode::BadCode),
            AccessError::TooManyFailures | AccessError::TooManyRequests => {
                (StatusCode::TOO_MANY_REQUESTS, ErrorCode::TooMany)
            }
            AccessError::Name(_) => (StatusCode::BAD_REQUEST, ErrorCode::BadRequest),
            AccessError::File(_) => (StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::AccessFile),
        };
        Self { status, code, message }
    }
}

impl From<store::Error> for ApiError {
    fn from(error: store::Error) -> Self {
        let message = error.text().into();
        let (status, code) = match error {
            store::Error::NoRun(_) => (StatusCode::NOT_FOUND, ErrorCode::NoRun),
            store::Error::NoAlert(_) => (StatusCode::NOT_FOUND, ErrorCode::NoAlert),
            store::Error::Changed => return Self::changed(),
            // Only `Archive::find` returns it, which no route calls.
            store::Error::Ambiguous(..) => return Self::internal(error),
            store::Error::NotEnded(_) => (StatusCode::CONFLICT, ErrorCode::NotEnded),
            store::Error::HasEnded(_) => (StatusCode::CONFLICT, ErrorCode::HasEnded),
            store::Error::NotOurs(_) => (StatusCode::CONFLICT, ErrorCode::NotOurs),
            store::Error::QueueFull(_) => (StatusCode::CONFLICT, ErrorCode::QueueFull),
            store::Error::Unusable(_) | store::Error::Denied(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::History)
            }
        };
        Self { status, code, message }
    }
}

impl From<run_manager::Error> for ApiError {
    fn from(error: run_manager::Error) -> Self {
        let message = error.text().into();
        use run_manager::Error;
        let (status, code) = match error {
            Error::Store(error) => return error.into(),
            Error::NotAllowed { .. } => (StatusCode::BAD_REQUEST, ErrorCode::NotAllowed),
            Error::Name { .. } => (StatusCode::BAD_REQUEST, ErrorCode::BadRequest),
            Error::Config { .. } => (StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::Config),
            Error::Device { .. } => (StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::Device),
            Error::Unavailable(_) => (StatusCode::CONFLICT, ErrorCode::Unavailable),
            Error::Elsewhere { .. } => (StatusCode::CONFLICT, ErrorCode::Elsewhere),
            Error::NothingSaved(_) => (StatusCode::CONFLICT, ErrorCode::NothingSaved),
            Error::NoCheckpoint(_) => (StatusCode::NOT_FOUND, ErrorCode::NoCheckpoint),
            Error::Folder { .. } | Error::Program(_) => (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Folder),
        };
        Self { status, code, message }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.page(None);
        response.extensions_mut().insert(self);
        response
    }
}

/// Returns whether a path is for programs: `/api`, `/metrics` or `/ws`.
pub fn is_for_programs(path: &str) -> bool {
    path == "/api" || path.starts_with("/api/") || path == "/metrics" || path == "/ws"
}

/// Logs a refusal. Replaces its body by JSON if the path is for programs, and adds the request's ID to a server error.
pub async fn dress(request: Request, next: Next) -> Response {
    let for_programs = is_for_programs(request.uri().path());
    let id = request.extensions().get::<RequestId>().copied();
    let mut response = next.run(request).await;
    let Some(refusal) = response.extensions_mut().remove::<ApiError>() else { return response };
    refusal.log();
    let mut dressed = if for_programs {
        refusal.json(id)
    } else if refusal.status.is_server_error() {
        refusal.page(id)
    } else {
        return response;
    };
    // The length of the file, for a range outside of it.
    if let Some(range) = response.headers_mut().remove(header::CONTENT_RANGE) {
        dressed.headers_mut().insert(header::CONTENT_RANGE, range);
    }
    // The router's `Allow` lists the methods of the route.
    if let Some(allow) = response.headers_mut().remove(header::ALLOW)
        && refusal.status == StatusCode::METHOD_NOT_ALLOWED
    {
        dressed.headers_mut().insert(header::ALLOW, allow);
    }
    dressed
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
