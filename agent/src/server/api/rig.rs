//! The rig as it is now, and as it was.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Query, State as Extract, rejection::QueryRejection},
};
use headroom_shared::protocol::{
    PROTOCOL_VERSION, Slow, Telemetry,
    alert::Fired,
    gpu::Gpu,
    history::{History, POINTS_MAX},
    state::State as Sources,
};
use serde::{Deserialize, Serialize};

use super::query;
use crate::{
    clock::now_ms,
    server::{
        State,
        archive::{Archive, asked},
        error::Refusal,
    },
};

/// Points of a range where nobody says: about as many as a laptop's window is wide.
const POINTS: u64 = 500;

/// All of it at one moment.
#[derive(Serialize)]
pub struct Rig {
    protocol: u32,
    agent: &'static str,
    session: String,
    name: String,
    time_ms: u64,
    n_viewers: u64,
    gpus: Vec<Gpu>,
    state: Sources,
    telemetry: Option<Telemetry>,
    slow: Option<Slow>,
    /// Where history cannot be read there are none, and its state says why.
    alerts: Vec<Fired>,
}

/// `GET /api/rig`.
pub async fn now(Extract(state): Extract<Arc<State>>) -> Json<Rig> {
    let alerts = asked(&state.archive, Archive::alerts).await.unwrap_or_default();
    let latest = state.hub.latest();
    Json(Rig {
        protocol: PROTOCOL_VERSION,
        agent: env!("CARGO_PKG_VERSION"),
        session: state.session.clone(),
        name: state.name.clone(),
        time_ms: now_ms(),
        n_viewers: state.hub.n_viewers(),
        gpus: state.hub.inventory(),
        state: state.hub.state(),
        telemetry: latest.telemetry.map(|telemetry| Telemetry::clone(&telemetry)),
        slow: latest.slow.map(|slow| Slow::clone(&slow)),
        alerts,
    })
}

/// A range of a card's time.
#[derive(Deserialize)]
pub struct Range {
    gpu: String,
    from_ms: u64,
    to_ms: u64,
    points: Option<u64>,
}

/// `GET /api/history`.
pub async fn history(
    Extract(state): Extract<Arc<State>>,
    range: Result<Query<Range>, QueryRejection>,
) -> Result<Json<History>, Refusal> {
    let Range { gpu, from_ms, to_ms, points } = query::read(range)?;
    let gpu = query::gpu(gpu)?;
    let n_points = query::count("points", points, POINTS, POINTS_MAX)?;
    // SQLite's numbers have a sign.
    if from_ms >= to_ms || to_ms > i64::MAX as u64 {
        return Err(Refusal::bad_request("from_ms has to be before to_ms, both in milliseconds since 1970."));
    }
    Ok(Json(asked(&state.archive, move |archive| archive.history(&gpu, from_ms, to_ms, n_points)).await?))
}
