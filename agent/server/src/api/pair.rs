//! Pairing: exchanges the code of a pairing link for a token.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Request, State as Extract},
};
use serde::Deserialize;

use super::json;
use crate::{Peer, State, access::token_file::NewToken, blocking::blocking, error::ApiError};
use headroom_agent_core::logging;

/// The body of the request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PairingBody {
    code: String,
    name: String,
}

/// `POST /api/pair`.
pub async fn pair(
    Extract(state): Extract<Arc<State>>,
    Peer(from): Peer,
    request: Request,
) -> Result<Json<NewToken>, ApiError> {
    let PairingBody { code, name } = json(request).await?;
    let access = state.access.clone();
    let paired = blocking(move || access.pair(&code, &name, from)).await??;
    tracing::info!(target: logging::ACCESS, scope = ?paired.scope, "a device was paired");
    Ok(Json(paired))
}
