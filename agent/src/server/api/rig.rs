//! The rig as it is now, and as it was.

use std::sync::Arc;

use axum::{Json, extract::State as Extract};
use headroom_shared::protocol::{
    PROTOCOL_VERSION, Slow, Telemetry,
    alert::Fired,
    gpu::Gpu,
    history::{Group, History, POINTS_MAX},
    state::State as Sources,
};
use serde::Serialize;

use super::query::{self, Asked, Read};
use crate::{
    clock::now_ms,
    server::{
        State,
        archive::{Archive, asked},
        error::Refusal,
        spoken::Spoken,
    },
    store::Subject,
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
pub async fn now(Extract(state): Extract<Arc<State>>, spoken: Spoken) -> Json<Rig> {
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
        state: spoken.say(state.hub.state()),
        telemetry: latest.telemetry.map(|telemetry| Telemetry::clone(&telemetry)),
        slow: latest.slow.map(|slow| Slow::clone(&slow)),
        alerts,
    })
}

/// `GET /api/history`.
pub async fn history(Extract(state): Extract<Arc<State>>, query: Read) -> Result<Json<History>, Refusal> {
    let asked_for = Asked::read(query)?;
    let group = asked_for.group()?;
    let named = match group {
        Group::Fast | Group::Slow => Some(query::gpu(&asked_for)?),
        // There is one machine.
        Group::Host => None,
    };
    let (from_ms, to_ms) = (asked_for.time_ms("from_ms")?, asked_for.time_ms("to_ms")?);
    let n_points = asked_for.count("points", POINTS, POINTS_MAX)?;
    // SQLite's numbers have a sign.
    if from_ms >= to_ms || to_ms > i64::MAX as u64 {
        return Err(Refusal::bad_request("from_ms has to be before to_ms, and to_ms at most 9223372036854775807."));
    }
    let gpu = match named {
        Some(named) => card(&state, named).await?,
        None => String::new(),
    };
    let history =
        asked(&state.archive, move |archive| archive.history(Subject { group, gpu: &gpu }, from_ms, to_ms, n_points));
    Ok(Json(history.await?))
}

/// The UUID of what was asked for as a card: one that is there, or one that was.
async fn card(state: &State, named: String) -> Result<String, Refusal> {
    let cards = state.hub.inventory();
    if let Some(uuid) = query::present(&cards, &named) {
        return Ok(uuid);
    }
    let kept = asked(&state.archive, Archive::cards).await?;
    if kept.iter().any(|card| card.uuid == named) { Ok(named) } else { Err(query::no_card(&cards, &kept, &named)) }
}
