//! Runs and their events.

use std::sync::Arc;

use axum::{Json, extract::State as Extract, http::StatusCode};
use headroom_protocol::{event::Event, run::Run};

use super::{
    path::RunId,
    query::{QueryParameters, RawQuery},
};
use crate::{State, archive::asked, audience::Audience, error::ApiError, orders};

/// The default number of runs.
const RUNS: u64 = 100;
/// The maximum number of runs per response.
const RUNS_MAX: u64 = 1000;
/// The maximum number of events per response; the next request continues after the last of them.
pub const EVENTS_MAX: u64 = 1000;

/// `GET /api/runs`.
pub async fn list(
    Extract(state): Extract<Arc<State>>,
    audience: Audience,
    query: RawQuery,
) -> Result<Json<Vec<Run>>, ApiError> {
    let n = QueryParameters::read(query)?.count("limit", RUNS, RUNS_MAX)?;
    let n = usize::try_from(n).unwrap_or(usize::MAX);
    Ok(Json(audience.shown(asked(&state.archive, move |archive| archive.runs(n)).await?)))
}

/// `GET /api/runs/{id}`.
pub async fn one(
    Extract(state): Extract<Arc<State>>,
    audience: Audience,
    RunId(id): RunId,
) -> Result<Json<Run>, ApiError> {
    Ok(Json(audience.shown(asked(&state.archive, move |archive| archive.run(&id)).await?)))
}

/// `GET /api/runs/{id}/events`.
pub async fn events(
    Extract(state): Extract<Arc<State>>,
    audience: Audience,
    RunId(id): RunId,
    query: RawQuery,
) -> Result<Json<Vec<Event>>, ApiError> {
    let asked_for = QueryParameters::read(query)?;
    let after = asked_for.number("after", "the number of an event")?.unwrap_or(0);
    let n = usize::try_from(asked_for.count("limit", EVENTS_MAX, EVENTS_MAX)?).unwrap_or(usize::MAX);
    let events = asked(&state.archive, move |archive| {
        // An unknown run is an error, while a run without events has an empty list.
        archive.run(&id)?;
        archive.events(Some(&id), after, n)
    });
    Ok(Json(audience.shown(events.await?)))
}

/// `DELETE /api/runs/{id}`.
pub async fn delete(Extract(state): Extract<Arc<State>>, RunId(id): RunId) -> Result<StatusCode, ApiError> {
    // The history notifies viewers, as for all events.
    let run = asked(&state.archive, move |archive| {
        let run = archive.run(&id)?;
        archive.delete_run(&id)?;
        Ok(run)
    });
    let run = run.await?;
    // Deletes files outside of the history: the run's directory and its stored output.
    orders::asked(&state.orders, move |orders| orders.deleted(&run)).await?;
    Ok(StatusCode::NO_CONTENT)
}
