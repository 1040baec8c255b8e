//! Runs that the agent starts itself.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, Request, State as Extract},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use headroom_shared::protocol::run::{Order, Run, Training};
use serde::Deserialize;

use super::{json, query};
use crate::server::{
    State,
    error::Refusal,
    orders::{Orders, asked},
    spoken::Spoken,
};

/// An [`Order`] as it comes from outside: a key that it does not have means something that would not be done.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    config: String,
    dataset: Option<String>,
    device: Option<String>,
    name: Option<String>,
}

/// `GET /api/training`.
pub async fn training(Extract(state): Extract<Arc<State>>, spoken: Spoken) -> Result<Json<Training>, Refusal> {
    Ok(Json(spoken.say(asked(&state.orders, Orders::training).await?)))
}

/// `POST /api/runs`.
pub async fn order(Extract(state): Extract<Arc<State>>, spoken: Spoken, request: Request) -> Result<Response, Refusal> {
    let Body { config, dataset, device, name } = json(request).await?;
    let order = Order { config, dataset, device, name };
    let run = asked(&state.orders, move |orders| orders.order(order)).await?;
    let place = HeaderValue::try_from(format!("/api/runs/{}", run.id));
    let mut response = (StatusCode::CREATED, Json(spoken.say(run))).into_response();
    if let Ok(place) = place {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

/// `POST /api/runs/{id}/stop`.
pub async fn stop(
    Extract(state): Extract<Arc<State>>,
    spoken: Spoken,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<Run>), Refusal> {
    let id = query::run(id)?;
    let run = asked(&state.orders, move |orders| orders.stop(&id)).await?;
    Ok((StatusCode::ACCEPTED, Json(spoken.say(run))))
}

/// `POST /api/runs/{id}/resume`.
pub async fn resume(
    Extract(state): Extract<Arc<State>>,
    spoken: Spoken,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<Run>), Refusal> {
    let id = query::run(id)?;
    let run = asked(&state.orders, move |orders| orders.resume(&id)).await?;
    Ok((StatusCode::ACCEPTED, Json(spoken.say(run))))
}
