//! Questions and their answers: everything that is not a stream, under `/api`, and `/metrics`.
//!
//! The routes are one table. Each says what it needs, and the check stands before all of them alike; `agent/openapi.json`
//! describes the same table, which a test holds against it both ways.

mod alerts;
pub mod checkpoint;
mod export;
mod pair;
mod query;
mod rig;
mod runs;
mod settings;
#[cfg(test)]
mod tests;
mod tokenizer;
mod training;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::{self, Body},
    extract::{Request, State as Extract},
    http::{HeaderMap, HeaderValue, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{self, MethodRouter},
};
use headroom_shared::protocol::Scope;
use serde::de::DeserializeOwned;

use super::{Peer, State, connection, error::Refusal, metrics};

/// Bytes of a body: the longest settings have a tenth of it.
const BODY_BYTES_MAX: usize = 16 * 1024;
/// Time for a body to arrive.
const BODY_TIME_MAX: Duration = Duration::from_secs(10);
/// Names that programs are known to put a token in.
const TOKEN_NAMES: [&str; 6] = ["token", "access_token", "auth", "authorization", "api_key", "bearer"];

/// The description, as it is sent.
const OPENAPI: &str = include_str!("../../openapi.json");

/// What a request has to bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// Nothing: what it gets is in every copy of the program.
    Nothing,
    /// To be a page of ours.
    Origin,
    /// A token of that scope.
    Token(Scope),
}

/// One way in.
struct Route {
    #[cfg_attr(not(test), expect(dead_code, reason = "the router has it inside `answer`; the test reads it here"))]
    method: &'static str,
    path: &'static str,
    needs: Needs,
    answer: fn() -> MethodRouter<Arc<State>>,
}

const VIEW: Needs = Needs::Token(Scope::View);
const CONTROL: Needs = Needs::Token(Scope::Control);

/// All of them.
const ROUTES: &[Route] = &[
    Route { method: "GET", path: "/api/rig", needs: VIEW, answer: || routing::get(rig::now) },
    Route { method: "GET", path: "/api/history", needs: VIEW, answer: || routing::get(rig::history) },
    Route { method: "GET", path: "/api/runs", needs: VIEW, answer: || routing::get(runs::list) },
    Route { method: "GET", path: "/api/runs/{id}", needs: VIEW, answer: || routing::get(runs::one) },
    Route { method: "DELETE", path: "/api/runs/{id}", needs: CONTROL, answer: || routing::delete(runs::delete) },
    Route { method: "GET", path: "/api/training", needs: VIEW, answer: || routing::get(training::training) },
    Route { method: "POST", path: "/api/runs", needs: CONTROL, answer: || routing::post(training::order) },
    Route { method: "POST", path: "/api/runs/{id}/stop", needs: CONTROL, answer: || routing::post(training::stop) },
    Route { method: "POST", path: "/api/runs/{id}/resume", needs: CONTROL, answer: || routing::post(training::resume) },
    Route { method: "GET", path: "/api/runs/{id}/events", needs: VIEW, answer: || routing::get(runs::events) },
    Route { method: "GET", path: "/api/runs/{id}/export.csv", needs: VIEW, answer: || routing::get(export::csv) },
    // Answers HEAD too, as every GET.
    Route {
        method: "GET",
        path: "/api/runs/{id}/checkpoint",
        needs: VIEW,
        answer: || routing::get(checkpoint::answer),
    },
    Route { method: "GET", path: "/api/tokenizers/gpt2", needs: VIEW, answer: || routing::get(tokenizer::answer) },
    Route { method: "GET", path: "/api/settings", needs: VIEW, answer: || routing::get(settings::get) },
    Route { method: "PUT", path: "/api/settings", needs: CONTROL, answer: || routing::put(settings::put) },
    Route {
        method: "DELETE",
        path: "/api/alerts/{event}",
        needs: CONTROL,
        answer: || routing::delete(alerts::dismiss),
    },
    Route { method: "POST", path: "/api/pair", needs: Needs::Origin, answer: || routing::post(pair::pair) },
    Route { method: "GET", path: "/api/openapi.json", needs: Needs::Nothing, answer: || routing::get(openapi) },
    Route { method: "GET", path: "/metrics", needs: VIEW, answer: || routing::get(metrics::answer) },
];

/// Method and path of each, for tests of what all of them have in common.
#[cfg(test)]
pub fn routes_for_tests() -> impl Iterator<Item = (&'static str, &'static str)> {
    ROUTES.iter().map(|route| (route.method, route.path))
}

/// The table as a router.
pub fn routes(state: &Arc<State>) -> Router<Arc<State>> {
    let routes = ROUTES.iter().fold(Router::new(), |router, route| {
        let checked = middleware::from_fn_with_state((Arc::clone(state), route.needs, route.path), check);
        router.route(route.path, (route.answer)().layer(checked))
    });
    let missing = || routing::any(async || Refusal::no_route());
    routes.route("/api", missing()).route("/api/", missing()).route("/api/{*rest}", missing())
}

/// Lets a request through that brings what its route needs.
async fn check(
    Extract((state, needs, path)): Extract<(Arc<State>, Needs, &'static str)>,
    Peer(from): Peer,
    mut request: Request,
    next: Next,
) -> Response {
    let judged = (|| {
        check_query(request.uri().query())?;
        // A page of somebody else's has no business here, whatever it knows. Programs send no Origin.
        if needs == Needs::Origin || request.headers().contains_key(header::ORIGIN) {
            state.hosts.judge_origin(request.headers())?;
        }
        let Needs::Token(scope) = needs else { return query::check_names(path, request.uri()).map(|()| None) };
        let grant = state.access.judge(bearer(request.headers())?, from)?;
        state.access.count(&grant)?;
        connection::keep(&request);
        if grant.scope < scope {
            return Err(Refusal::scope());
        }
        query::check_names(path, request.uri()).map(|()| Some(grant.scope))
    })();
    match judged {
        Err(refusal) => refusal.into_response(),
        Ok(scope) => {
            // What it reads of commands and configs depends on it.
            scope.map(|scope| request.extensions_mut().insert(scope));
            let mut response = next.run(request).await;
            // What a token shows is nobody else's, not even a cache's.
            response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
            response
        }
    }
}

/// Refuses an address that has a token in it.
///
/// # Errors
/// It has.
pub fn check_query(query: Option<&str>) -> Result<(), Refusal> {
    let names = query.unwrap_or_default().split('&').map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name));
    for name in names {
        if TOKEN_NAMES.iter().any(|token| name.eq_ignore_ascii_case(token)) {
            return Err(Refusal::token_in_query());
        }
    }
    Ok(())
}

/// The token of `Authorization: Bearer TOKEN`.
fn bearer(headers: &HeaderMap) -> Result<&str, Refusal> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return Err(Refusal::no_token()) };
    let (scheme, token) = value.to_str().ok().and_then(|value| value.split_once(' ')).ok_or_else(Refusal::no_token)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(token.trim()) } else { Err(Refusal::no_token()) }
}

/// A body as JSON, within its bounds.
async fn json<T: DeserializeOwned>(request: Request) -> Result<T, Refusal> {
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_json = content_type
        .and_then(|value| value.split(';').next())
        .is_some_and(|value| value.trim().eq_ignore_ascii_case("application/json"));
    if !is_json {
        return Err(Refusal::bad_request("The body has to be JSON, with Content-Type: application/json."));
    }
    let body = body::to_bytes(request.into_body(), BODY_BYTES_MAX);
    let bytes = tokio::time::timeout(BODY_TIME_MAX, body).await.map_err(|_| Refusal::too_late())?;
    let bytes = bytes.map_err(|_| Refusal::too_large(BODY_BYTES_MAX))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Refusal::bad_request(format!("The body is not what /api/openapi.json describes: {error}.")))
}

/// The description of all this.
async fn openapi() -> Response {
    let mut response = Response::new(Body::from(OPENAPI));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
