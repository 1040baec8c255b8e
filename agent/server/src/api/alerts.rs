//! Active alerts.

use std::sync::Arc;

use axum::{extract::State as Extract, http::StatusCode};

use super::path::EventNumber;
use crate::{State, archive::asked, error::ApiError};

/// `DELETE /api/alerts/{event}`.
pub async fn dismiss(
    Extract(state): Extract<Arc<State>>,
    EventNumber(event): EventNumber,
) -> Result<StatusCode, ApiError> {
    // The history notifies viewers, as for all events.
    asked(&state.archive, move |archive| archive.dismiss(event)).await?;
    Ok(StatusCode::NO_CONTENT)
}
