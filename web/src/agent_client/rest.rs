//! Requests to the agent, with the token in a header and never in an address.

use headroom_shared::protocol::{
    alert::Settings,
    event::Event,
    history::{History, POINTS_MAX},
    run::{AllowedConfig, Device, Order, Training},
};
use js_sys::{Array, JSON, Reflect, encode_uri_component};
use serde::{Deserialize, de::DeserializeOwned};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{Headers, RequestInit, Response, window};

use crate::{
    browser::language,
    state::rig::connection::Probe,
    text::{self, t},
};

/// Why a request has no answer, in words: the agent's, else the browser's.
pub type Failed = String;

/// Pages of a run's events at most: a run of a million printed lines is drawn from those that are kept.
const EVENT_PAGES_MAX: usize = 200;

/// What an agent says where it refuses.
#[derive(Deserialize)]
struct Refused {
    message: String,
}

/// What a code is exchanged for.
#[derive(Deserialize)]
struct Paired {
    token: String,
}

async fn fetch(method: &str, path: &str, token: Option<&str>, body: Option<&str>) -> Result<Response, Failed> {
    send(Headers::new().map_err(words)?, method, path, token, body).await
}

#[expect(clippy::needless_pass_by_value, reason = "as map_err gives it")]
fn words(error: JsValue) -> Failed {
    let message = Reflect::get(&error, &JsValue::from_str("message")).ok().and_then(|message| message.as_string());
    message.unwrap_or_else(|| format!("{error:?}"))
}

async fn send(
    headers: Headers,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: Option<&str>,
) -> Result<Response, Failed> {
    // Refusals are shown as the agent words them.
    headers.set("accept-language", &language()).map_err(words)?;
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

/// The answer's text, or the agent's words where it refuses.
async fn ask(method: &str, path: &str, token: Option<&str>, body: Option<&str>) -> Result<String, Failed> {
    read(fetch(method, path, token, body).await?).await
}

async fn read(response: Response) -> Result<String, Failed> {
    let text = body_of(&response).await;
    if response.ok() {
        return Ok(text);
    }
    let said = serde_json::from_str(&text).map(|refused: Refused| refused.message);
    Err(said.unwrap_or_else(|_| format!("{} {}", response.status(), response.status_text())))
}

/// The body of an answer, for who reads it himself.
pub async fn body(path: &str, token: &str) -> Result<String, Failed> {
    ask("GET", path, Some(token), None).await
}

async fn get<T: DeserializeOwned>(path: &str, token: &str) -> Result<T, Failed> {
    let text = ask("GET", path, Some(token), None).await?;
    serde_json::from_str(&text).map_err(|_| not_understood())
}

/// What a person can do about an answer of another version.
fn not_understood() -> Failed {
    t(text::RIG_NOT_UNDERSTOOD).to_owned()
}

/// What answers where an agent should: an agent says what it can be asked, or refuses in JSON.
pub async fn probe() -> Probe {
    let Ok(response) = fetch("GET", "api/openapi.json", None, None).await else { return Probe::Nothing };
    let kind = response.headers().get("content-type").ok().flatten().unwrap_or_default();
    let is_answer = response.ok() || matches!(response.status(), 401 | 403 | 429 | 503);
    if is_answer && kind.contains("json") { Probe::Agent } else { Probe::Other }
}

/// Exchanges a code for a token, under a name that the owner will recognise.
pub async fn pair(code: &str, name: &str) -> Result<String, Failed> {
    let body = serde_json::json!({ "code": code, "name": name }).to_string();
    let text = ask("POST", "api/pair", None, Some(&body)).await?;
    serde_json::from_str(&text).map(|paired: Paired| paired.token).map_err(|_| not_understood())
}

/// A card over a range of time.
pub async fn history(token: &str, gpu: &str, from_ms: u64, to_ms: u64, points: u64) -> Result<History, Failed> {
    let gpu = String::from(encode_uri_component(gpu));
    let points = points.min(POINTS_MAX);
    get(&format!("api/history?gpu={gpu}&from_ms={from_ms}&to_ms={to_ms}&points={points}"), token).await
}

/// All events of a run that are kept, oldest first.
pub async fn events(token: &str, run: &str) -> Result<Vec<Event>, Failed> {
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

/// A list of events.
fn events_of(list: &str) -> Result<Vec<Event>, Failed> {
    serde_json::from_str(list).map_err(|_| not_understood())
}

/// The name of the settings in an answer.
fn tag(response: &Response) -> String {
    response.headers().get("etag").ok().flatten().unwrap_or_default()
}

/// What the owner set, and the agent's name for it.
pub async fn settings(token: &str) -> Result<(Settings, String), Failed> {
    let response = fetch("GET", "api/settings", Some(token), None).await?;
    let tag = tag(&response);
    serde_json::from_str(&read(response).await?).map(|settings| (settings, tag)).map_err(|error| error.to_string())
}

/// Sets it in the place of what has this name, and gives its own; nothing where something else is set meanwhile.
pub async fn set_settings(token: &str, settings: &Settings, before: &str) -> Result<Option<String>, Failed> {
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

/// What may be started. Read by the browser: so few lists are not worth eight kilobytes of code of their own.
pub async fn training(token: &str) -> Result<Training, Failed> {
    let found = parsed(&body("api/training", token).await?)?;
    let config = |config: &JsValue| AllowedConfig {
        name: text_at(config, "name").unwrap_or_default(),
        dataset: text_at(config, "dataset"),
        device: text_at(config, "device"),
        max_iters: None,
    };
    let device = |device: &JsValue| Device {
        name: text_at(device, "name").unwrap_or_default(),
        label: text_at(device, "label").unwrap_or_default(),
        unavailable: text_at(device, "unavailable"),
    };
    Ok(Training {
        unavailable: text_at(&found, "unavailable"),
        configs: list_at(&found, "configs").iter().map(config).collect(),
        datasets: list_at(&found, "datasets").iter().filter_map(JsValue::as_string).collect(),
        devices: list_at(&found, "devices").iter().map(device).collect(),
    })
}

/// Starts a run, or puts it into the queue; its number, and what it is called.
pub async fn start(token: &str, order: &Order) -> Result<(String, String), Failed> {
    let Order { config, dataset, device, name } = order;
    let body = serde_json::json!({ "config": config, "dataset": dataset, "device": device, "name": name }).to_string();
    let text = ask("POST", "api/runs", Some(token), Some(&body)).await?;
    let run = parsed(&text)?;
    text_at(&run, "id").zip(text_at(&run, "name")).ok_or_else(not_understood)
}

fn parsed(text: &str) -> Result<JsValue, Failed> {
    JSON::parse(text).map_err(|_| not_understood())
}

fn at(value: &JsValue, name: &str) -> JsValue {
    Reflect::get(value, &JsValue::from_str(name)).unwrap_or(JsValue::UNDEFINED)
}

fn text_at(value: &JsValue, name: &str) -> Option<String> {
    at(value, name).as_string()
}

fn list_at(value: &JsValue, name: &str) -> Vec<JsValue> {
    at(value, name).dyn_into::<Array>().map(|list| list.to_vec()).unwrap_or_default()
}

/// Asks something of a run: the method, and what stands behind the run in the address.
pub async fn act(token: &str, run: &str, (method, what): (&str, &str)) -> Result<(), Failed> {
    let run = String::from(encode_uri_component(run));
    ask(method, &format!("api/runs/{run}{what}"), Some(token), None).await.map(drop)
}

/// Dismisses the alert that went off by an event; one that is over or dismissed already is as good.
pub async fn dismiss(token: &str, event: u64) -> Result<(), Failed> {
    let response = fetch("DELETE", &format!("api/alerts/{event}"), Some(token), None).await?;
    if response.status() == 404 {
        return Ok(());
    }
    read(response).await.map(drop)
}
