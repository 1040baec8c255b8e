//! The REST API under `/api`, and `/metrics`.
//!
//! All routes are in one table with their requirements, which a single middleware checks, and their descriptions, of which
//! [`openapi`] generates the OpenAPI description.

mod alerts;
pub mod checkpoint;
mod export;
mod openapi;
mod pair;
mod path;
mod query;
mod requirement;
mod rig;
mod routes;
mod runs;
mod settings;
#[cfg(test)]
mod tests;
mod tokenizer;
mod training;

use std::{sync::Arc, time::Duration};

use axum::{
    Router, body,
    extract::{Request, State as Extract},
    http::{HeaderValue, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing,
};
use serde::de::DeserializeOwned;

use super::{
    Peer, State,
    authorization::{bearer, check_query},
    connection,
    error::ApiError,
};
use requirement::RouteRequirement;
use routes::ROUTES;

/// The maximum size of a body in bytes: ten times the longest settings.
const BODY_BYTES_MAX: usize = 16 * 1024;
/// The time limit for a body.
const BODY_TIME_MAX: Duration = Duration::from_secs(10);

/// A route of the table, for tests of all routes.
#[cfg(test)]
pub struct TestRoute {
    /// The method.
    pub method: &'static str,
    /// The path, with valid values for its parameters.
    pub path: String,
    /// The scope of the token that the route requires, if any.
    pub scope: Option<headroom_protocol::Scope>,
    /// Whether a response contains runs or their events, according to the description.
    pub has_run_data: bool,
}

/// Returns all routes, for tests of all routes.
#[cfg(test)]
pub fn routes_for_tests() -> Vec<TestRoute> {
    let described: serde_json::Value = serde_json::from_str(routes::description()).unwrap_or_default();
    let routes = ROUTES.iter().map(|route| {
        let responses = &described["paths"][route.path][route.method.to_lowercase()]["responses"];
        let scope = if let RouteRequirement::Token(scope) = route.needs { Some(scope) } else { None };
        let has = |name: &str| responses.to_string().contains(&format!("#/components/schemas/{name}\""));
        TestRoute {
            method: route.method,
            path: route.path.replace("{id}", "ab").replace("{event}", "7"),
            scope,
            has_run_data: has("Run") || has("Event"),
        }
    });
    routes.collect()
}

/// Returns the router of the table.
pub fn routes(state: &Arc<State>) -> Router<Arc<State>> {
    let routes = ROUTES.iter().fold(Router::new(), |router, route| {
        let names = openapi::query_names(&route.operation()).into();
        let checked = middleware::from_fn_with_state((Arc::clone(state), route.needs, names), check);
        router.route(route.path, (route.answer)().layer(checked))
    });
    let missing = || routing::any(async || ApiError::no_route());
    routes.route("/api", missing()).route("/api/", missing()).route("/api/{*rest}", missing())
}

/// Middleware that checks the requirement of a route.
async fn check(
    Extract((state, needs, names)): Extract<(Arc<State>, RouteRequirement, Arc<[String]>)>,
    Peer(from): Peer,
    mut request: Request,
    next: Next,
) -> Response {
    let judged = (|| {
        check_query(request.uri().query())?;
        // A page of a foreign origin is refused even with a valid token. Programs send no `Origin`.
        if needs == RouteRequirement::Origin || request.headers().contains_key(header::ORIGIN) {
            state.hosts.judge_origin(request.headers())?;
        }
        let RouteRequirement::Token(scope) = needs else {
            return query::check_names(&names, request.uri()).map(|()| None);
        };
        let grant = state.access.judge(bearer(request.headers())?, from)?;
        state.access.count(&grant)?;
        connection::keep(&request);
        if grant.scope < scope {
            return Err(ApiError::scope());
        }
        query::check_names(&names, request.uri()).map(|()| Some(grant.scope))
    })();
    match judged {
        Err(refusal) => refusal.into_response(),
        Ok(scope) => {
            // The scope decides whether the response redacts secrets in commands and configs.
            scope.map(|scope| request.extensions_mut().insert(scope));
            let mut response = next.run(request).await;
            // Authenticated responses must not be cached.
            response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
            response
        }
    }
}

/// Parses a JSON body within its limits of size and time.
async fn json<T: DeserializeOwned>(request: Request) -> Result<T, ApiError> {
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_json = content_type
        .and_then(|value| value.split(';').next())
        .is_some_and(|value| value.trim().eq_ignore_ascii_case("application/json"));
    if !is_json {
        return Err(ApiError::bad_request("The body has to be JSON, with Content-Type: application/json."));
    }
    let body = body::to_bytes(request.into_body(), BODY_BYTES_MAX);
    let bytes = tokio::time::timeout(BODY_TIME_MAX, body).await.map_err(|_| ApiError::too_late())?;
    let bytes = bytes.map_err(|_| ApiError::too_large(BODY_BYTES_MAX))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| ApiError::bad_request(format!("The body is not what /api/openapi.json describes: {error}.")))
}
