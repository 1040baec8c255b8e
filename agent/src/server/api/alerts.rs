//! Alerts that are on.

use std::sync::Arc;

use axum::{
    extract::{Path, State as Extract},
    http::StatusCode,
};

use crate::server::{State, archive::asked, error::Refusal};

/// `DELETE /api/alerts/{event}`.
pub async fn dismiss(Extract(state): Extract<Arc<State>>, Path(event): Path<String>) -> Result<StatusCode, Refusal> {
    let event = event.parse().map_err(|_| Refusal::bad_request("An alert is named by the number of its event."))?;
    // Those who watch are told by history, as of everything that happens.
    asked(&state.archive, move |archive| archive.dismiss(event)).await?;
    Ok(StatusCode::NO_CONTENT)
}
