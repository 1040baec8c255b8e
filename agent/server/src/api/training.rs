//! Runs that the agent starts.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Request, State as Extract},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use headroom_protocol::run::{Run, RunRequest, Training};
use serde::Deserialize;

use super::{json, path::RunId};
use crate::{
    State,
    audience::Audience,
    error::ApiError,
    orders::{Orders, asked},
};

/// The [`RunRequest`] of a request. Unknown keys are refused, because they would have no effect.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    config: String,
    dataset: Option<String>,
    device: Option<String>,
    name: Option<String>,
}

/// `GET /api/training`.
pub async fn training(Extract(state): Extract<Arc<State>>, audience: Audience) -> Result<Json<Training>, ApiError> {
    Ok(Json(audience.shown(asked(&state.orders, Orders::training).await?)))
}

/// `POST /api/runs`.
pub async fn order(
    Extract(state): Extract<Arc<State>>,
    audience: Audience,
    request: Request,
) -> Result<Response, ApiError> {
    let Body { config, dataset, device, name } = json(request).await?;
    let order = RunRequest { config, dataset, device, name };
    let run = asked(&state.orders, move |orders| orders.order(order)).await?;
    let place = HeaderValue::try_from(format!("/api/runs/{}", run.id));
    let mut response = (StatusCode::CREATED, Json(audience.shown(run))).into_response();
    if let Ok(place) = place {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

/// `POST /api/runs/{id}/stop`.
pub async fn stop(
    Extract(state): Extract<Arc<State>>,
    audience: Audience,
    RunId(id): RunId,
) -> Result<(StatusCode, Json<Run>), ApiError> {
    let run = asked(&state.orders, move |orders| orders.stop(&id)).await?;
    Ok((StatusCode::ACCEPTED, Json(audience.shown(run))))
}

/// `POST /api/runs/{id}/resume`.
pub async fn resume(
    Extract(state): Extract<Arc<State>>,
    audience: Audience,
    RunId(id): RunId,
) -> Result<(StatusCode, Json<Run>), ApiError> {
    let run = asked(&state.orders, move |orders| orders.resume(&id)).await?;
    Ok((StatusCode::ACCEPTED, Json(audience.shown(run))))
}
