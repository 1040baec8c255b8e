//! Parameters of paths. An invalid one is refused with the same JSON object as any other request; axum's own rejection
//! would be plain text.

use axum::{
    extract::{FromRequestParts, Path},
    http::request::Parts,
};

use crate::error::ApiError;

/// The maximum length of a run's ID; the agent's have 16 characters.
const RUN_CHARS_MAX: usize = 64;

/// The `{id}` of a path: the full ID of a run, which may not exist.
pub struct RunId(pub String);

impl<S: Send + Sync> FromRequestParts<S> for RunId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let fits =
            |id: &str| (1..=RUN_CHARS_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        match path {
            Ok(Path(id)) if fits(&id) => Ok(Self(id)),
            _ => Err(ApiError::bad_request(format!("A run's ID has 1 to {RUN_CHARS_MAX} letters and digits."))),
        }
    }
}

/// The `{event}` of a path: the number of the event that raised an alert.
pub struct EventNumber(pub u64);

impl<S: Send + Sync> FromRequestParts<S> for EventNumber {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let number = path.ok().and_then(|Path(event)| event.parse().ok());
        number.map(Self).ok_or_else(|| ApiError::bad_request("An alert is named by the number of its event."))
    }
}
