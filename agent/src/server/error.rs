//! What the server says where it does not give what was asked for. Only here does a reason become a status.
//!
//! A person gets a page, a program the protocol's body: which of the two is decided by the path, where the answer leaves.

use axum::{
    extract::Request,
    http::{HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use headroom_shared::{protocol::PROTOCOL_VERSION, text};
use serde_json::json;

use super::{
    access::AccessError,
    assets::AssetError,
    host::{HostError, OriginError},
    spoken::Spoken,
};
use crate::{foreman, store};

/// A refusal as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    status: StatusCode,
    /// For programs: stable, unlike the words.
    code: &'static str,
    /// For people.
    message: String,
}

impl Refusal {
    /// The request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, code: "bad_request", message: message.into() }
    }

    /// A token where it would be logged.
    pub fn token_in_query() -> Self {
        let message = "A token does not belong into an address, which is logged and remembered. \
                       Send it as `Authorization: Bearer TOKEN`.";
        Self { status: StatusCode::BAD_REQUEST, code: "token_in_query", message: message.to_owned() }
    }

    /// No token at all.
    pub fn no_token() -> Self {
        Self { status: StatusCode::UNAUTHORIZED, code: "no_token", message: text::NEEDS_TOKEN.to_string() }
    }

    /// The token is good, and not for this.
    pub fn scope() -> Self {
        Self { status: StatusCode::FORBIDDEN, code: "scope", message: text::MAY_ONLY_LOOK.to_string() }
    }

    /// No such address under the programs' part.
    pub fn no_route() -> Self {
        let message = "There is nothing at this address. /api/openapi.json lists what there is.";
        Self { status: StatusCode::NOT_FOUND, code: "not_found", message: message.to_owned() }
    }

    /// The address is there, and not for this method.
    pub fn method() -> Self {
        let message = "This address takes other methods: the answer's Allow has them.";
        Self { status: StatusCode::METHOD_NOT_ALLOWED, code: "method_not_allowed", message: message.to_owned() }
    }

    /// A change of something unnamed.
    pub fn precondition_required() -> Self {
        let message = "Say which settings are to be changed, so that nobody's are lost: `If-Match` with the ETag that \
                       GET /api/settings gave, or `If-Match: *` for whatever is set.";
        Self { status: StatusCode::PRECONDITION_REQUIRED, code: "precondition_required", message: message.to_owned() }
    }

    /// A change of something that is another meanwhile.
    fn changed() -> Self {
        let message = text::SETTINGS_CHANGED_ELSEWHERE.to_string();
        Self { status: StatusCode::PRECONDITION_FAILED, code: "changed", message }
    }

    /// No such card, and which there are.
    pub fn no_card(message: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, code: "no_card", message: message.into() }
    }

    /// A run has no checkpoint to give, and why.
    pub fn no_checkpoint(message: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, code: "no_checkpoint", message: message.into() }
    }

    /// A part of a checkpoint that is another meanwhile.
    pub fn checkpoint_changed() -> Self {
        let message = text::CHECKPOINT_REPLACED.to_string();
        Self { status: StatusCode::PRECONDITION_FAILED, code: "changed", message }
    }

    /// A part of a file that it does not have, or several at once.
    pub fn range(bytes: u64) -> Self {
        let message = format!("This takes one range within its {bytes} bytes: `Range: bytes=FIRST-LAST`.");
        Self { status: StatusCode::RANGE_NOT_SATISFIABLE, code: "range", message }
    }

    /// As many checkpoints are read as may be.
    pub fn too_many_checkpoints() -> Self {
        let message = text::TOO_MANY_CHECKPOINTS.to_string();
        Self { status: StatusCode::SERVICE_UNAVAILABLE, code: "too_many", message }
    }

    /// The body is too long.
    pub fn too_large(bytes_max: usize) -> Self {
        let message = format!("The body has more than {bytes_max} bytes.");
        Self { status: StatusCode::PAYLOAD_TOO_LARGE, code: "too_large", message }
    }

    /// The body did not come in time.
    pub fn too_late() -> Self {
        let message = "The body did not arrive in time.".to_owned();
        Self { status: StatusCode::REQUEST_TIMEOUT, code: "too_late", message }
    }

    /// There are as many viewers as there may be.
    pub fn too_many() -> Self {
        let message = text::TOO_MANY_VIEWERS.to_string();
        Self { status: StatusCode::SERVICE_UNAVAILABLE, code: "too_many", message }
    }

    /// There are as many requests being answered as there may be.
    pub fn busy() -> Self {
        let message = "This rig is answering as many requests as it can at once. Try again later.".to_owned();
        Self { status: StatusCode::SERVICE_UNAVAILABLE, code: "busy", message }
    }

    /// Not asked for as a socket.
    pub fn no_upgrade() -> Self {
        let message = "This is a WebSocket: GET with Upgrade, version 13.".to_owned();
        Self { status: StatusCode::BAD_REQUEST, code: "no_upgrade", message }
    }

    /// A task of ours ended before its answer.
    pub fn internal() -> Self {
        let message = text::ANSWER_UNFINISHED.to_string();
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, code: "internal", message }
    }

    fn page(&self) -> Response {
        let Self { status, code, message } = self;
        let reason = status.canonical_reason().unwrap_or("Refused");
        let message = escaped(message);
        let page = format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{reason} · Headroom</title>\n\
             <h1>{reason}</h1>\n<p>{message}</p>\n<p><small>{} {code}</small></p>\n",
            status.as_u16()
        );
        self.answer("text/html; charset=utf-8", page)
    }

    /// The same fields as the protocol's refusal.
    fn json(&self) -> Response {
        let body = json!({ "code": self.code, "message": self.message, "supported": [PROTOCOL_VERSION] });
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

impl From<HostError> for Refusal {
    fn from(error: HostError) -> Self {
        let (status, code) = match error {
            HostError::Unclear => (StatusCode::BAD_REQUEST, "unclear_host"),
            HostError::Foreign { .. } => (StatusCode::FORBIDDEN, "foreign_host"),
        };
        Self { status, code, message: error.to_string() }
    }
}

impl From<OriginError> for Refusal {
    fn from(error: OriginError) -> Self {
        let code = match error {
            OriginError::Missing => "missing_origin",
            OriginError::Foreign { .. } => "foreign_origin",
        };
        Self { status: StatusCode::FORBIDDEN, code, message: error.to_string() }
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

impl From<AccessError> for Refusal {
    fn from(error: AccessError) -> Self {
        let (status, code) = match error {
            AccessError::BadToken => (StatusCode::UNAUTHORIZED, "bad_token"),
            AccessError::BadCode => (StatusCode::FORBIDDEN, "bad_code"),
            AccessError::TooManyFailures | AccessError::TooManyRequests => (StatusCode::TOO_MANY_REQUESTS, "too_many"),
            AccessError::Name(_) => (StatusCode::BAD_REQUEST, "bad_request"),
            AccessError::File(_) => (StatusCode::INTERNAL_SERVER_ERROR, "access_file"),
        };
        Self { status, code, message: error.to_string() }
    }
}

impl From<store::Error> for Refusal {
    fn from(error: store::Error) -> Self {
        let (status, code) = match error {
            store::Error::NoRun(_) => (StatusCode::NOT_FOUND, "no_run"),
            store::Error::NoAlert(_) => (StatusCode::NOT_FOUND, "no_alert"),
            store::Error::Changed => return Self::changed(),
            store::Error::Ambiguous(..) => (StatusCode::CONFLICT, "ambiguous_run"),
            store::Error::NotEnded(_) => (StatusCode::CONFLICT, "not_ended"),
            store::Error::HasEnded(_) => (StatusCode::CONFLICT, "has_ended"),
            store::Error::NotOurs(_) => (StatusCode::CONFLICT, "not_ours"),
            store::Error::QueueFull(_) => (StatusCode::CONFLICT, "queue_full"),
            store::Error::Unusable(_) => (StatusCode::SERVICE_UNAVAILABLE, "history"),
        };
        Self { status, code, message: error.to_string() }
    }
}

impl From<foreman::Error> for Refusal {
    fn from(error: foreman::Error) -> Self {
        use foreman::Error;
        let (status, code) = match error {
            Error::Store(error) => return error.into(),
            Error::NotAllowed { .. } => (StatusCode::BAD_REQUEST, "not_allowed"),
            Error::Name { .. } => (StatusCode::BAD_REQUEST, "bad_request"),
            Error::Config { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "config"),
            Error::Device { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "device"),
            Error::Unavailable(_) => (StatusCode::CONFLICT, "unavailable"),
            Error::Elsewhere { .. } => (StatusCode::CONFLICT, "elsewhere"),
            Error::NothingSaved(_) => (StatusCode::CONFLICT, "nothing_saved"),
            Error::NoCheckpoint(_) => (StatusCode::NOT_FOUND, "no_checkpoint"),
            Error::Folder { .. } | Error::Program(_) => (StatusCode::SERVICE_UNAVAILABLE, "folder"),
        };
        Self { status, code, message: error.to_string() }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = self.page();
        response.extensions_mut().insert(self);
        response
    }
}

/// Whether programs ask there.
pub fn is_for_programs(path: &str) -> bool {
    path == "/api" || path.starts_with("/api/") || path == "/metrics" || path == "/ws"
}

/// Gives programs the refusals that they can read.
pub async fn dress(request: Request, next: Next) -> Response {
    let for_programs = is_for_programs(request.uri().path());
    let spoken = Spoken::of_headers(request.headers());
    let mut response = next.run(request).await;
    let refusal = response.extensions_mut().remove::<Refusal>();
    let Some(mut refusal) = refusal.filter(|_| for_programs) else { return response };
    if !spoken.is_english() {
        spoken.sentence(&mut refusal.message);
    }
    let mut dressed = refusal.json();
    // How long the file is of which a part was asked for that it does not have.
    if let Some(range) = response.headers_mut().remove(header::CONTENT_RANGE) {
        dressed.headers_mut().insert(header::CONTENT_RANGE, range);
    }
    // The routes know better what they take.
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
