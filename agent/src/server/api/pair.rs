//! A device's token for the code of a link that the owner showed it.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Request, State as Extract},
};
use serde::Deserialize;
use tokio::task::spawn_blocking;

use super::json;
use crate::server::{Peer, State, access::book::Paired, error::Refusal};

/// What a page sends.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    code: String,
    name: String,
}

/// `POST /api/pair`.
pub async fn pair(
    Extract(state): Extract<Arc<State>>,
    Peer(from): Peer,
    request: Request,
) -> Result<Json<Paired>, Refusal> {
    let Asked { code, name } = json(request).await?;
    let access = state.access.clone();
    let paired = spawn_blocking(move || access.pair(&code, &name, from)).await.map_err(|_| Refusal::internal())?;
    Ok(Json(paired?))
}
