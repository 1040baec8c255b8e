//! Active alerts.

use std::sync::Arc;

use axum::{
    extract::{Path, State as Extract},
    http::StatusCode,
};

use crate::{State, archive::asked, error::ApiError};

/// `DELETE /api/alerts/{event}`.
pub async fn dismiss(Extract(state): Extract<Arc<State>>, Path(event): Path<String>) -> Result<StatusCode, ApiError> {
    let event = event.parse().map_err(|_| ApiError::bad_request("An alert is named by the number of its event."))?;
    // The history notifies viewers, as for all events.
    asked(&state.archive, move |archive| archive.dismiss(event)).await?;
    Ok(StatusCode::NO_CONTENT)
}
