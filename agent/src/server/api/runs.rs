//! Runs, and what happened in them.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State as Extract},
    http::StatusCode,
};
use headroom_shared::protocol::{event::Event, run::Run};

use super::query::{self, Asked, Read};
use crate::server::{State, archive::asked, error::Refusal, orders, spoken::Spoken};

/// Runs where nobody says how many.
const RUNS: u64 = 100;
/// Runs in one answer.
const RUNS_MAX: u64 = 1000;
/// Events in one answer; the next asks after the last of them.
pub const EVENTS_MAX: u64 = 1000;

/// `GET /api/runs`.
pub async fn list(Extract(state): Extract<Arc<State>>, spoken: Spoken, query: Read) -> Result<Json<Vec<Run>>, Refusal> {
    let n = Asked::read(query)?.count("limit", RUNS, RUNS_MAX)?;
    let n = usize::try_from(n).unwrap_or(usize::MAX);
    Ok(Json(spoken.say(asked(&state.archive, move |archive| archive.runs(n)).await?)))
}

/// `GET /api/runs/{id}`.
pub async fn one(
    Extract(state): Extract<Arc<State>>,
    spoken: Spoken,
    Path(id): Path<String>,
) -> Result<Json<Run>, Refusal> {
    let id = query::run(id)?;
    Ok(Json(spoken.say(asked(&state.archive, move |archive| archive.run(&id)).await?)))
}

/// `GET /api/runs/{id}/events`.
pub async fn events(
    Extract(state): Extract<Arc<State>>,
    spoken: Spoken,
    Path(id): Path<String>,
    query: Read,
) -> Result<Json<Vec<Event>>, Refusal> {
    let id = query::run(id)?;
    let asked_for = Asked::read(query)?;
    let after = asked_for.number("after", "the number of an event")?.unwrap_or(0);
    let n = usize::try_from(asked_for.count("limit", EVENTS_MAX, EVENTS_MAX)?).unwrap_or(usize::MAX);
    let events = asked(&state.archive, move |archive| {
        // A run that is not there has no events, which is another answer than none.
        archive.run(&id)?;
        archive.events(Some(&id), after, n)
    });
    Ok(Json(spoken.say(events.await?)))
}

/// `DELETE /api/runs/{id}`.
pub async fn delete(Extract(state): Extract<Arc<State>>, Path(id): Path<String>) -> Result<StatusCode, Refusal> {
    let id = query::run(id)?;
    // Those who watch are told by history, as of everything that happens.
    let run = asked(&state.archive, move |archive| {
        let run = archive.run(&id)?;
        archive.delete_run(&id)?;
        Ok(run)
    });
    let run = run.await?;
    if run.order.is_some() {
        orders::asked(&state.orders, move |orders| orders.deleted(&run)).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}
