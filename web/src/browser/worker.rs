//! The worker that runs the demo's model or a checkpoint. There is one at a time; a new one terminates the previous one
//! and frees its memory.

use std::cell::RefCell;

use headroom_protocol::demo::{WorkerRequest, WorkerResponse, files::Role};
use js_sys::{Array, Object, Reflect};
use leptos::prelude::document;
use wasm_bindgen::{JsCast, JsValue, closure::Closure};
use web_sys::{Event, File, MessageEvent, Worker, WorkerOptions, WorkerType};

/// The worker's script, in the page's directory.
const SCRIPT: &str = "worker.js";
/// The weights shipped with the page, in the page's directory.
pub const MODEL: &str = "stories.safetensors";

thread_local! {
    static WORKER: RefCell<Option<Worker>> = const { RefCell::new(None) };
    /// A worker that checks selected files while the current worker keeps its model.
    static CANDIDATE: RefCell<Option<Worker>> = const { RefCell::new(None) };
    /// Files that the user selected. A tokenizer may be here before its weights.
    static CHOSEN: RefCell<Vec<File>> = const { RefCell::new(Vec::new()) };
    /// Files of the open model, which are sent again to a restarted worker.
    static FILES: RefCell<Vec<File>> = const { RefCell::new(Vec::new()) };
}

/// Returns the address of a file in the page's directory.
pub fn beside(name: &str) -> String {
    let base = document().base_uri().ok().flatten().unwrap_or_default();
    web_sys::Url::new_with_base(name, &base).map(|url| url.href()).unwrap_or_default()
}

/// Starts a worker, which replaces the previous one. `hear` receives its messages, or the error that stopped it.
pub fn begin(hear: impl Fn(Result<WorkerResponse, String>) + Clone + 'static) {
    begin_plain(move |message| match message.map(|json| serde_json::from_str(&json)) {
        Ok(Ok(tell)) => hear(Ok(tell)),
        // The page and the worker come from one build, so parsing does not fail.
        Ok(Err(_)) => {}
        Err(reason) => hear(Err(reason)),
    });
}

/// Starts a worker like [`begin`], but passes its messages on without parsing them.
pub fn begin_plain(hear: impl Fn(Result<String, String>) + Clone + 'static) {
    end();
    WORKER.set(started(hear));
}

/// Starts a candidate worker. The current worker stays until [`replace`] is called. A previous candidate is terminated.
pub fn begin_beside(hear: impl Fn(Result<WorkerResponse, String>) + Clone + 'static) {
    reject();
    CANDIDATE.set(started(move |message: Result<String, String>| {
        match message.map(|json| serde_json::from_str(&json)) {
            Ok(Ok(tell)) => hear(Ok(tell)),
            Ok(Err(_)) => {}
            Err(reason) => hear(Err(reason)),
        }
    }));
}

/// Replaces the current worker and its files with the candidate. Returns whether there is a candidate.
pub fn replace() -> bool {
    let Some(candidate) = CANDIDATE.take() else { return false };
    end();
    WORKER.set(Some(candidate));
    take_chosen();
    true
}

/// Terminates the candidate.
pub fn reject() {
    if let Some(worker) = CANDIDATE.take() {
        stop(&worker);
    }
}

/// Reports whether there is a candidate.
pub fn is_candidate() -> bool {
    CANDIDATE.with_borrow(Option::is_some)
}

/// Makes the selected files those of the model that is opened next.
pub fn take_chosen() {
    FILES.set(CHOSEN.with_borrow(Clone::clone));
}

fn started(hear: impl Fn(Result<String, String>) + Clone + 'static) -> Option<Worker> {
    let options = WorkerOptions::new();
    options.set_type(WorkerType::Module);
    let worker = match Worker::new_with_options(&beside(SCRIPT), &options) {
        Ok(worker) => worker,
        Err(error) => {
            hear(Err(format!("{error:?}")));
            return None;
        }
    };
    let forward = hear.clone();
    let on_message = Closure::<dyn FnMut(MessageEvent)>::new(move |event: MessageEvent| {
        if let Some(message) = event.data().as_string() {
            forward(Ok(message));
        }
    });
    let on_error = Closure::<dyn FnMut(Event)>::new(move |event: Event| {
        // A script that fails to load causes an event without a message.
        let message = Reflect::get(&event, &JsValue::from_str("message")).ok().and_then(|message| message.as_string());
        let message = message.filter(|message| !message.is_empty());
        hear(Err(message.unwrap_or_else(|| format!("{}: {SCRIPT}", event.type_()))));
    });
    // The browser owns the closures. It frees them after `stop`, through the FinalizationRegistry of wasm-bindgen.
    worker.set_onmessage(Some(on_message.into_js_value().unchecked_ref()));
    worker.set_onerror(Some(on_error.into_js_value().unchecked_ref()));
    Some(worker)
}

/// Terminates the worker and the candidate.
pub fn end() {
    reject();
    if let Some(worker) = WORKER.take() {
        stop(&worker);
    }
}

fn stop(worker: &Worker) {
    worker.set_onmessage(None);
    worker.set_onerror(None);
    worker.terminate();
}

/// Sends a request to the worker, with the model's files if it opens a model.
pub fn ask(ask: &WorkerRequest) {
    let Ok(json) = serde_json::to_string(ask) else { return };
    let files: Array = match ask {
        WorkerRequest::Open { .. } => FILES.with_borrow(|files| files.iter().collect()),
        _ => Array::new(),
    };
    post_with(&json, &files, &JsValue::UNDEFINED);
}

/// Sends a request to the candidate, with the selected files.
pub fn ask_candidate(ask: &WorkerRequest) {
    let Ok(json) = serde_json::to_string(ask) else { return };
    let files: Array = CHOSEN.with_borrow(|files| files.iter().collect());
    CANDIDATE.with_borrow(|worker| post_to(worker.as_ref(), &json, &files, &JsValue::UNDEFINED));
}

/// Sends a request that is already JSON to the worker.
pub fn post(ask: &str) {
    post_with(ask, &Array::new(), &JsValue::UNDEFINED);
}

/// Sends a request that opens a checkpoint fetched over the network.
///
/// The checkpoint is at `address` and the messages' texts at `words`, both relative to the page. From then on the
/// worker sends plain text messages only.
pub fn post_remote(ask: &str, address: &str, token: &str, words: &str) {
    let remote = Object::new();
    for (key, value) in [("address", &*beside(address)), ("token", token), ("words", &*beside(words))] {
        let done = Reflect::set(&remote, &JsValue::from_str(key), &JsValue::from_str(value));
        debug_assert!(done.is_ok(), "an object takes keys");
    }
    post_with(ask, &Array::new(), &remote);
}

fn post_with(json: &str, files: &Array, remote: &JsValue) {
    WORKER.with_borrow(|worker| post_to(worker.as_ref(), json, files, remote));
}

fn post_to(worker: Option<&Worker>, json: &str, files: &Array, remote: &JsValue) {
    let message = Object::new();
    let set = |key: &str, value: &JsValue| Reflect::set(&message, &JsValue::from_str(key), value).is_ok();
    let done = set("ask", &JsValue::from_str(json)) && set("files", files) && set("remote", remote);
    debug_assert!(done, "an object takes keys");
    if let Some(worker) = worker {
        // A worker that has stopped receives no messages; its error event has reported this.
        drop(worker.post_message(&message));
    }
}

/// Adds selected files. New weights start a new selection; a tokenizer or config alone is added to the existing files.
pub fn choose(new: Vec<File>) {
    let is_weights = |file: &File| Role::of(&file.name()).is_weights();
    CHOSEN.with_borrow_mut(|files| {
        // New weights are another model. A tokenizer selected before its weights stays.
        if files.iter().any(is_weights) && new.iter().any(is_weights) {
            files.clear();
        }
        files.retain(|old| new.iter().all(|new| new.name() != old.name()));
        files.extend(new);
    });
}

/// Clears the selected files and the files of the open model.
pub fn forget() {
    CHOSEN.with_borrow_mut(Vec::clear);
    FILES.with_borrow_mut(Vec::clear);
}

/// Returns the name of the first file of the open model.
pub fn first_name() -> String {
    FILES.with_borrow(|files| files.first().map(File::name).unwrap_or_default())
}

/// Reports whether the open model comes from the user's files.
pub fn has_files() -> bool {
    FILES.with_borrow(|files| !files.is_empty())
}
