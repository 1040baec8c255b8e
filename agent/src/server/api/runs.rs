//! Runs, and what happened in them.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, Query, State as Extract, rejection::QueryRejection},
    http::StatusCode,
};
use headroom_shared::protocol::{
    event::{Event, What},
    run::Run,
};
use serde::Deserialize;

use super::query;
use crate::{
    clock::now_ms,
    server::{State, archive::asked, error::Refusal},
};

/// Runs where nobody says how many.
const RUNS: u64 = 100;
/// Runs in one answer.
const RUNS_MAX: u64 = 1000;
/// Events in one answer; the next asks after the last of them.
pub const EVENTS_MAX: u64 = 1000;

/// How many runs.
#[derive(Deserialize)]
pub struct Page {
    limit: Option<u64>,
}

/// `GET /api/runs`.
pub async fn list(
    Extract(state): Extract<Arc<State>>,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Json<Vec<Run>>, Refusal> {
    let n = query::count("limit", query::read(page)?.limit, RUNS, RUNS_MAX)?;
    let n = usize::try_from(n).unwrap_or(usize::MAX);
    Ok(Json(asked(&state.archive, move |archive| archive.runs(n)).await?))
}

/// `GET /api/runs/{id}`.
pub async fn one(Extract(state): Extract<Arc<State>>, Path(id): Path<String>) -> Result<Json<Run>, Refusal> {
    let id = query::run(id)?;
    Ok(Json(asked(&state.archive, move |archive| archive.run(&id)).await?))
}

/// Which events.
#[derive(Deserialize)]
pub struct After {
    #[serde(default)]
    after: u64,
    limit: Option<u64>,
}

/// `GET /api/runs/{id}/events`.
pub async fn events(
    Extract(state): Extract<Arc<State>>,
    Path(id): Path<String>,
    after: Result<Query<After>, QueryRejection>,
) -> Result<Json<Vec<Event>>, Refusal> {
    let id = query::run(id)?;
    let After { after, limit } = query::read(after)?;
    let n = usize::try_from(query::count("limit", limit, EVENTS_MAX, EVENTS_MAX)?).unwrap_or(usize::MAX);
    let events = asked(&state.archive, move |archive| {
        // A run that is not there has no events, which is another answer than none.
        archive.run(&id)?;
        archive.events(Some(&id), after, n)
    });
    Ok(Json(events.await?))
}

/// `DELETE /api/runs/{id}`.
pub async fn delete(Extract(state): Extract<Arc<State>>, Path(id): Path<String>) -> Result<StatusCode, Refusal> {
    let id = query::run(id)?;
    let run = id.clone();
    let ended = asked(&state.archive, move |archive| {
        let ended = archive.run(&run)?.status.has_ended();
        if ended {
            archive.delete_run(&run)?;
        }
        Ok(ended)
    });
    if !ended.await? {
        return Err(Refusal::run_not_ended());
    }
    // Those who watch drop it too; there is nothing left in history that would say so.
    state.hub.event(Event { id: 0, time_ms: now_ms(), run: Some(id), what: What::RunDeleted });
    Ok(StatusCode::NO_CONTENT)
}
