//! The worker that runs the demo's model, or a checkpoint's: one at a time, ended where another begins, so that nothing of it stays.

use std::cell::RefCell;

use headroom_shared::demo::{Ask, Tell, files::Role};
use js_sys::{Array, Object, Reflect};
use leptos::prelude::document;
use wasm_bindgen::{JsCast, JsValue, closure::Closure};
use web_sys::{Event, File, MessageEvent, Worker, WorkerOptions, WorkerType};

/// The worker's script, beside the page.
const SCRIPT: &str = "worker.js";
/// The model that ships, beside the page.
pub const MODEL: &str = "stories.safetensors";

thread_local! {
    static WORKER: RefCell<Option<Worker>> = const { RefCell::new(None) };
    /// A worker that looks at chosen files while the other one still has its model.
    static CANDIDATE: RefCell<Option<Worker>> = const { RefCell::new(None) };
    /// What a person chose: a tokenizer may wait here for its weights.
    static CHOSEN: RefCell<Vec<File>> = const { RefCell::new(Vec::new()) };
    /// The files of the model that is open: a worker that is begun anew gets them again.
    static FILES: RefCell<Vec<File>> = const { RefCell::new(Vec::new()) };
}

/// The address of a file beside the page.
pub fn beside(name: &str) -> String {
    let base = document().base_uri().ok().flatten().unwrap_or_default();
    web_sys::Url::new_with_base(name, &base).map(|url| url.href()).unwrap_or_default()
}

/// Begins a worker in the place of the one before. `hear` gets what it tells, or what stopped it.
pub fn begin(hear: impl Fn(Result<Tell, String>) + Clone + 'static) {
    begin_plain(move |told| match told.map(|json| serde_json::from_str(&json)) {
        Ok(Ok(tell)) => hear(Ok(tell)),
        // Both programs are of one build.
        Ok(Err(_)) => {}
        Err(reason) => hear(Err(reason)),
    });
}

/// The same, for who reads its messages himself.
pub fn begin_plain(hear: impl Fn(Result<String, String>) + Clone + 'static) {
    end();
    WORKER.set(started(hear));
}

/// Begins a worker beside the one that is there, which stays until [`replace`]. Another candidate ends.
pub fn begin_beside(hear: impl Fn(Result<Tell, String>) + Clone + 'static) {
    reject();
    CANDIDATE.set(started(move |told: Result<String, String>| match told.map(|json| serde_json::from_str(&json)) {
        Ok(Ok(tell)) => hear(Ok(tell)),
        Ok(Err(_)) => {}
        Err(reason) => hear(Err(reason)),
    }));
}

/// Puts the candidate and its files in the place of the worker that was there. Whether there is one.
pub fn replace() -> bool {
    let Some(candidate) = CANDIDATE.take() else { return false };
    end();
    WORKER.set(Some(candidate));
    take_chosen();
    true
}

/// Ends the candidate.
pub fn reject() {
    if let Some(worker) = CANDIDATE.take() {
        stop(&worker);
    }
}

/// Whether a candidate is looked at.
pub fn is_candidate() -> bool {
    CANDIDATE.with_borrow(Option::is_some)
}

/// Takes the chosen files for those of the model that is opened next.
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
    let told = hear.clone();
    let on_message = Closure::<dyn FnMut(MessageEvent)>::new(move |event: MessageEvent| {
        if let Some(message) = event.data().as_string() {
            told(Ok(message));
        }
    });
    let on_error = Closure::<dyn FnMut(Event)>::new(move |event: Event| {
        // A script that does not arrive makes an event without a message.
        let message = Reflect::get(&event, &JsValue::from_str("message")).ok().and_then(|message| message.as_string());
        let message = message.filter(|message| !message.is_empty());
        hear(Err(message.unwrap_or_else(|| format!("{}: {SCRIPT}", event.type_()))));
    });
    // They live as long as the worker may call them, which is until the page goes.
    worker.set_onmessage(Some(on_message.into_js_value().unchecked_ref()));
    worker.set_onerror(Some(on_error.into_js_value().unchecked_ref()));
    Some(worker)
}

/// Ends the worker, whatever it does, and the candidate.
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

/// Asks the worker.
pub fn ask(ask: &Ask) {
    let Ok(json) = serde_json::to_string(ask) else { return };
    let files: Array = match ask {
        Ask::Open { .. } => FILES.with_borrow(|files| files.iter().collect()),
        _ => Array::new(),
    };
    post_with(&json, &files, &JsValue::UNDEFINED);
}

/// Asks the candidate to open the chosen files.
pub fn ask_candidate(ask: &Ask) {
    let Ok(json) = serde_json::to_string(ask) else { return };
    let files: Array = CHOSEN.with_borrow(|files| files.iter().collect());
    CANDIDATE.with_borrow(|worker| post_to(worker.as_ref(), &json, &files, &JsValue::UNDEFINED));
}

/// Asks the worker, by JSON that is made elsewhere.
pub fn post(ask: &str) {
    post_with(ask, &Array::new(), &JsValue::UNDEFINED);
}

/// The same with a checkpoint that is fetched, in place of files: its address and the texts of what is told, both beside
/// the page, and a token. The worker tells words alone from then on.
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
        // A worker that is gone hears nothing; whoever asked hears of that by its error.
        drop(worker.post_message(&message));
    }
}

/// Takes files that a person chose. Weights begin a new choice; a tokenizer or config alone is put to the files there.
pub fn choose(new: Vec<File>) {
    let is_weights = |file: &File| Role::of(&file.name()).is_weights();
    CHOSEN.with_borrow_mut(|files| {
        // Other weights are another model; a tokenizer that waits for its weights keeps waiting.
        if files.iter().any(is_weights) && new.iter().any(is_weights) {
            files.clear();
        }
        files.retain(|old| new.iter().all(|new| new.name() != old.name()));
        files.extend(new);
    });
}

/// Forgets what was chosen.
pub fn forget() {
    CHOSEN.with_borrow_mut(Vec::clear);
    FILES.with_borrow_mut(Vec::clear);
}

/// The name of the first file of the model that is open.
pub fn first_name() -> String {
    FILES.with_borrow(|files| files.first().map(File::name).unwrap_or_default())
}

/// Whether the model that is open is a person's.
pub fn has_files() -> bool {
    FILES.with_borrow(|files| !files.is_empty())
}
