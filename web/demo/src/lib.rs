//! The demo's worker: runs a GPT in the browser, on WebGPU or in WebAssembly, outside the page's main thread.
//!
//! The page sends requests ([`ask`]) and receives messages; both are defined in `headroom_protocol::demo`. Requests are
//! processed in order. Text generation checks for new requests each time it yields to the browser.
#![cfg_attr(not(target_arch = "wasm32"), allow(dead_code, reason = "natively only its tests run"))]

mod engine;
mod host;
mod model;
mod session;
mod tokenizer;
mod ways;

// Tests compare errors in English.
#[cfg(test)]
use headroom_languages as _;

use std::{cell::RefCell, collections::VecDeque};

use headroom_protocol::demo::{Failure, WorkerRequest, WorkerResponse};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen_futures::spawn_local;
use web_sys::File;

use session::Session;

/// A queued task. Tasks run one after the other.
enum Task {
    /// A request from the page, with the files sent along.
    Answer(WorkerRequest, Vec<File>),
    /// A report to the page that the model's device is lost.
    Mourn(Failure),
}

/// The tasks that are not yet finished.
#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    is_running: bool,
}

thread_local! {
    static QUEUE: RefCell<Queue> = RefCell::default();
}

/// Queues a request from the page: the JSON of an [`WorkerRequest`] and the files sent along.
#[wasm_bindgen]
pub fn ask(json: &str, files: Vec<File>) {
    // The page and the worker come from one build, so parsing does not fail.
    let Ok(ask) = serde_json::from_str(json) else { return };
    queue(Task::Answer(ask, files));
}

/// Reports that the model's device is lost. A running computation detects and reports the loss itself; an idle model
/// needs this report.
fn lost(failure: Failure) {
    queue(Task::Mourn(failure));
}

fn queue(task: Task) {
    let is_running = QUEUE.with_borrow_mut(|queue| {
        queue.tasks.push_back(task);
        std::mem::replace(&mut queue.is_running, true)
    });
    if !is_running {
        spawn_local(answer_all());
    }
}

/// Reports whether a queued request interrupts the text being generated.
fn is_interrupted() -> bool {
    QUEUE.with_borrow(|queue| {
        queue.tasks.iter().any(|task| matches!(task, Task::Answer(WorkerRequest::Stop | WorkerRequest::Write(_), _)))
    })
}

/// Removes all queued pace requests and returns the latest pause in milliseconds.
fn asked_pace() -> Option<u32> {
    let asked = |task: &Task| match task {
        Task::Answer(WorkerRequest::Pace(pause_millis), _) => Some(*pause_millis),
        _ => None,
    };
    taken(asked)
}

/// Removes all queued tasks for which `asked` returns a value, and returns the last value.
fn taken<T>(asked: impl Fn(&Task) -> Option<T>) -> Option<T> {
    QUEUE.with_borrow_mut(|queue| {
        let last = queue.tasks.iter().rev().find_map(&asked);
        queue.tasks.retain(|task| asked(task).is_none());
        last
    })
}

/// Removes all queued requests for a token's attention and returns the latest token.
fn asked_attention() -> Option<u64> {
    let asked = |task: &Task| match task {
        Task::Answer(WorkerRequest::Attention(token), _) => Some(*token),
        _ => None,
    };
    taken(asked)
}

thread_local! {
    static SESSION: RefCell<Option<Session>> = const { RefCell::new(None) };
}

async fn done(task: Task, session: Option<Session>) -> Result<Option<Session>, Failure> {
    match (task, session) {
        (Task::Answer(WorkerRequest::Open { source, way, gpu_bytes }, files), _) => {
            model::open(source, files, way, gpu_bytes).await.map(Some)
        }
        (Task::Answer(WorkerRequest::Write(write), _), Some(mut session)) => {
            session.write(&write).await?;
            Ok(Some(session))
        }
        (Task::Answer(WorkerRequest::Attention(token), _), Some(mut session)) => {
            session.attention(token).await?;
            Ok(Some(session))
        }
        (Task::Mourn(failure), Some(_)) => Err(failure),
        (Task::Answer(..) | Task::Mourn(_), session) => Ok(session),
    }
}

async fn answer_all() {
    loop {
        let next = QUEUE.with_borrow_mut(|queue| {
            let next = queue.tasks.pop_front();
            queue.is_running = next.is_some();
            next
        });
        let Some(task) = next else { return };
        // Tasks run one after the other, so the session is not in use elsewhere.
        let session = SESSION.take();
        match done(task, session).await {
            Ok(session) => SESSION.set(session),
            // A failed task drops its session, so the failure is reported once.
            Err(failure) => host::tell(&WorkerResponse::Failed(failure)),
        }
    }
}
