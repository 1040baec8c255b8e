//! HTTP requests to the agent. The token is sent in a header and never in a URL.

use headroom_protocol::{
    alert::Settings,
    event::Event,
    history::{History, POINTS_MAX},
    message::Message,
    run::{RunRequest, Training},
};
use js_sys::{Reflect, encode_uri_component};
use serde::{Deserialize, de::DeserializeOwned};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{Headers, RequestInit, Response, window};

use crate::{
    state::rig::connection::Probe,
    text::{self, t},
};

/// The message of a failed request: the agent's, or else the browser's.
pub type RequestError = String;

/// Maximum number of event pages fetched per run. A run with a million printed lines is drawn from the retained events.
const EVENT_PAGES_MAX: usize = 200;

/// The answer to a pairing request.
#[derive(Deserialize)]
struct PairingAnswer {
    token: String,
}

/// The answer to a request that starts a run.
#[derive(Deserialize)]
struct StartAnswer {
    id: String,
    name: String,
}

/// The part of a server error's body that identifies the request in the agent's log.
#[derive(Deserialize)]
struct ServerError {
    request_id: String,
}

async fn fetch(method: &str, path: &str, token: Option<&str>, body: Option<&str>) -> Result<Response, RequestError> {
    send(Headers::new().map_err(words)?, method, path, token, body).await
}

#[expect(clippy::needless_pass_by_value, reason = "map_err passes it by value")]
fn words(error: JsValue) -> RequestError {
    let message = Reflect::get(&error, &JsValue::from_str("message")).ok().and_then(|message| message.as_string());
    message.unwrap_or_else(|| format!("{error:?}"))
}

async fn send(
    headers: Headers,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: Option<&str>,
) -> Result<Response, RequestError> {
    if let Some(token) = token {
        headers.set("authorization", &format!("Bearer {token}")).map_err(words)?;
    }
    let init = RequestInit::new();
    init.set_method(method);
    if let Some(body) = body {
        headers.set("content-type", "application/json").map_err(words)?;
        init.set_body(&JsValue::from_str(body));
    }
    init.set_headers(&headers);
    let window = window().ok_or_else(String::new)?;
    let sent = window.fetch_with_str_and_init(&super::beside(path), &init);
    JsFuture::from(sent).await.map_err(words)?.dyn_into().map_err(words)
}

async fn body_of(response: &Response) -> String {
    let Ok(text) = response.text() else { return String::new() };
    JsFuture::from(text).await.ok().and_then(|text| text.as_string()).unwrap_or_default()
}

/// Sends a request and returns the body of the answer.
///
/// # Errors
///
/// Returns the agent's message if it refuses the request.
async fn ask(method: &str, path: &str, token: Option<&str>, body: Option<&str>) -> Result<String, RequestError> {
    read(fetch(method, path, token, body).await?).await
}

async fn read(response: Response) -> Result<String, RequestError> {
    let text = body_of(&response).await;
    if response.ok() {
        return Ok(text);
    }
    // The body of a refusal is a message with a code.
    let message = serde_json::from_str(&text).map(|refusal: Message| text::message(&refusal));
    let message = message.unwrap_or_else(|_| format!("{} {}", response.status(), response.status_text()));
    Err(match serde_json::from_str(&text) {
        Ok(ServerError { request_id }) => text::say(&text::rig_request_id(message, request_id)),
        Err(_) => message,
    })
}

/// Fetches the body of an answer without parsing it.
pub async fn body(path: &str, token: &str) -> Result<String, RequestError> {
    ask("GET", path, Some(token), None).await
}

async fn get<T: DeserializeOwned>(path: &str, token: &str) -> Result<T, RequestError> {
    let text = ask("GET", path, Some(token), None).await?;
    serde_json::from_str(&text).map_err(|_| not_understood())
}

/// Returns the message for an answer of an incompatible version.
fn not_understood() -> RequestError {
    t(text::RIG_NOT_UNDERSTOOD).to_owned()
}

/// Identifies the server at the agent's address. An agent returns its API description or refuses in JSON.
pub async fn probe() -> Probe {
    let Ok(response) = fetch("GET", "api/openapi.json", None, None).await else { return Probe::Nothing };
    let kind = response.headers().get("content-type").ok().flatten().unwrap_or_default();
    let is_answer = response.ok() || matches!(response.status(), 401 | 403 | 429 | 503);
    if is_answer && kind.contains("json") { Probe::Agent } else { Probe::Other }
}

/// Exchanges a pairing code for a token. The owner sees the token under `name`.
pub async fn pair(code: &str, name: &str) -> Result<String, RequestError> {
    let body = serde_json::json!({ "code": code, "name": name }).to_string();
    let text = ask("POST", "api/pair", None, Some(&body)).await?;
    serde_json::from_str(&text).map(|paired: PairingAnswer| paired.token).map_err(|_| not_understood())
}

/// Fetches the history of a GPU for a time range, with at most `points` points.
pub async fn history(token: &str, gpu: &str, from_ms: u64, to_ms: u64, points: u64) -> Result<History, RequestError> {
    let gpu = String::from(encode_uri_component(gpu));
    let points = points.min(POINTS_MAX);
    get(&format!("api/history?gpu={gpu}&from_ms={from_ms}&to_ms={to_ms}&points={points}"), token).await
}

/// Fetches all retained events of a run, oldest first.
pub async fn events(token: &str, run: &str) -> Result<Vec<Event>, RequestError> {
    let run = String::from(encode_uri_component(run));
    let mut all: Vec<Event> = Vec::new();
    for _ in 0..EVENT_PAGES_MAX {
        let after = all.last().map_or(0, |event| event.id);
        let page = events_of(&ask("GET", &format!("api/runs/{run}/events?after={after}"), Some(token), None).await?)?;
        let is_last = page.last().is_none_or(|event| event.id <= after);
        all.extend(page);
        if is_last {
            break;
        }
    }
    Ok(all)
}

/// Parses a list of events.
fn events_of(list: &str) -> Result<Vec<Event>, RequestError> {
    serde_json::from_str(list).map_err(|_| not_understood())
}

/// Returns the `ETag` header of an answer.
fn tag(response: &Response) -> String {
    response.headers().get("etag").ok().flatten().unwrap_or_default()
}

/// Fetches the owner's settings and their ETag.
pub async fn settings(token: &str) -> Result<(Settings, String), RequestError> {
    let response = fetch("GET", "api/settings", Some(token), None).await?;
    let tag = tag(&response);
    serde_json::from_str(&read(response).await?).map(|settings| (settings, tag)).map_err(|error| error.to_string())
}

/// Replaces the settings that have the ETag `before` and returns the new ETag. Returns `None` if the settings have
/// changed meanwhile.
pub async fn set_settings(token: &str, settings: &Settings, before: &str) -> Result<Option<String>, RequestError> {
    let body = serde_json::to_string(settings).map_err(|error| error.to_string())?;
    let headers = Headers::new().map_err(words)?;
    headers.set("if-match", before).map_err(words)?;
    let response = send(headers, "PUT", "api/settings", Some(token), Some(&body)).await?;
    if response.status() == 412 {
        return Ok(None);
    }
    let tag = tag(&response);
    read(response).await.map(|_| Some(tag))
}

/// Fetches the configs, data sets and devices with which runs can be started.
pub async fn training(token: &str) -> Result<Training, RequestError> {
    get("api/training", token).await
}

/// Starts or queues a run and returns its id and name.
pub async fn start(token: &str, order: &RunRequest) -> Result<(String, String), RequestError> {
    let RunRequest { config, dataset, device, name } = order;
    let body = serde_json::json!({ "config": config, "dataset": dataset, "device": device, "name": name }).to_string();
    let text = ask("POST", "api/runs", Some(token), Some(&body)).await?;
    serde_json::from_str(&text).map(|StartAnswer { id, name }| (id, name)).map_err(|_| not_understood())
}

/// Sends a request for a run. The pair is the HTTP method and the path after the run's id.
pub async fn act(token: &str, run: &str, (method, what): (&str, &str)) -> Result<(), RequestError> {
    let run = String::from(encode_uri_component(run));
    ask(method, &format!("api/runs/{run}{what}"), Some(token), None).await.map(drop)
}

/// Dismisses the alert that an event fired. Succeeds also if the alert is over or already dismissed.
pub async fn dismiss(token: &str, event: u64) -> Result<(), RequestError> {
    let response = fetch("DELETE", &format!("api/alerts/{event}"), Some(token), None).await?;
    if response.status() == 404 {
        return Ok(());
    }
    read(response).await.map(drop)
}
