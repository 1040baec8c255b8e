//! The current state of the machine, and its history.

use std::sync::Arc;

use axum::{Json, extract::State as Extract};
use headroom_protocol::{
    PROTOCOL_VERSION, SlowReadings, Telemetry,
    alert::FiredAlert,
    gpu::Gpu,
    history::{History, POINTS_MAX},
    metric::Group,
    state::State as Sources,
};
use serde::Serialize;

use super::query::{self, QueryParameters, RawQuery};
use crate::{
    State,
    archive::{Archive, asked},
    audience::Audience,
    error::ApiError,
};
use headroom_agent_core::{clock::now_ms, logging::HTTP, store::Subject};

/// The default number of points of a range: about the width of a laptop's window.
const POINTS: u64 = 500;

/// The state of the machine at one moment.
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
    slow: Option<SlowReadings>,
    /// Empty if the history cannot be read; `state` has the reason.
    alerts: Vec<FiredAlert>,
}

/// `GET /api/rig`.
pub async fn now(Extract(state): Extract<Arc<State>>, audience: Audience) -> Json<Rig> {
    // The state has the reason, and a pause of the history is logged once.
    let alerts = asked(&state.archive, Archive::alerts).await;
    let alerts = alerts.inspect_err(|error| tracing::debug!(target: HTTP, %error, "cannot read alerts"));
    let latest = state.hub.latest();
    Json(Rig {
        protocol: PROTOCOL_VERSION,
        agent: env!("CARGO_PKG_VERSION"),
        session: state.session.clone(),
        name: state.name.clone(),
        time_ms: now_ms(),
        n_viewers: state.hub.n_viewers(),
        gpus: state.hub.inventory(),
        state: audience.shown(state.hub.state()),
        telemetry: latest.telemetry.map(|telemetry| Telemetry::clone(&telemetry)),
        slow: latest.slow.map(|slow| SlowReadings::clone(&slow)),
        alerts: alerts.unwrap_or_default(),
    })
}

/// `GET /api/history`.
pub async fn history(Extract(state): Extract<Arc<State>>, query: RawQuery) -> Result<Json<History>, ApiError> {
    let asked_for = QueryParameters::read(query)?;
    let group = asked_for.group()?;
    let named = match group {
        Group::Fast | Group::Slow => Some(query::gpu(&asked_for)?),
        // The group has a single machine, so no GPU is needed.
        Group::Host => None,
    };
    let (from_ms, to_ms) = (asked_for.time_ms("from_ms")?, asked_for.time_ms("to_ms")?);
    let n_points = asked_for.count("points", POINTS, POINTS_MAX)?;
    // SQLite's integers are signed.
    if from_ms >= to_ms || to_ms > i64::MAX as u64 {
        return Err(ApiError::bad_request("from_ms must be before to_ms, and to_ms at most 9223372036854775807."));
    }
    let gpu = match named {
        Some(named) => gpu(&state, named).await?,
        None => String::new(),
    };
    let history =
        asked(&state.archive, move |archive| archive.history(Subject { group, gpu: &gpu }, from_ms, to_ms, n_points));
    Ok(Json(history.await?))
}

/// Returns the UUID of a present or former GPU.
async fn gpu(state: &State, named: String) -> Result<String, ApiError> {
    let gpus = state.hub.inventory();
    if let Some(uuid) = query::present(&gpus, &named) {
        return Ok(uuid);
    }
    let kept = asked(&state.archive, Archive::gpus).await?;
    if kept.iter().any(|gpu| gpu.uuid == named) { Ok(named) } else { Err(query::no_gpu(&gpus, &kept, &named)) }
}
