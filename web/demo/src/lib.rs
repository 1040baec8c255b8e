//! The demo's worker: a GPT that runs in the browser, on WebGPU or in WebAssembly, off the page's own thread.
//!
//! The page asks ([`ask`]) and is told by messages; what they say is `headroom_shared::demo`. Asks are answered one after
//! the other, but a text that is being written looks for new ones as often as it lets the browser take a breath.
#![cfg_attr(not(target_arch = "wasm32"), allow(dead_code, reason = "natively only its tests run"))]

mod engine;
mod host;
mod model;
mod session;
mod tokenizer;
mod ways;

use std::{cell::RefCell, collections::VecDeque};

use headroom_shared::demo::{Ask, Failure, Tell};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen_futures::spawn_local;
use web_sys::File;

use session::Session;

/// Something to be done, when what is before it is done.
enum Task {
    /// To answer, with the files that were sent along.
    Answer(Ask, Vec<File>),
    /// To tell that the model's device is lost.
    Mourn(Failure),
}

/// What was asked and not yet answered.
#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    is_running: bool,
}

thread_local! {
    static QUEUE: RefCell<Queue> = RefCell::default();
}

/// Takes what the page asks, as JSON of [`Ask`], and the files that it sent along.
#[wasm_bindgen]
pub fn ask(json: &str, files: Vec<File>) {
    // Both programs are of one build, so that what the one writes the other reads.
    let Ok(ask) = serde_json::from_str(json) else { return };
    queue(Task::Answer(ask, files));
}

/// The model's device is lost: whoever computes finds it out and tells, but nobody may.
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

/// Whether something waits that ends a text which is being written.
fn is_interrupted() -> bool {
    QUEUE.with_borrow(|queue| queue.tasks.iter().any(|task| matches!(task, Task::Answer(Ask::Stop | Ask::Write(_), _))))
}

/// The pace that was asked for since this was last called.
fn asked_pace() -> Option<u32> {
    QUEUE.with_borrow_mut(|queue| {
        let mut asked = None;
        queue.tasks.retain(|task| match task {
            Task::Answer(Ask::Pace(pause_millis), _) => {
                asked = Some(*pause_millis);
                false
            }
            _ => true,
        });
        asked
    })
}

thread_local! {
    static SESSION: RefCell<Option<Session>> = const { RefCell::new(None) };
}

async fn done(task: Task, session: Option<Session>) -> Result<Option<Session>, Failure> {
    match (task, session) {
        (Task::Answer(Ask::Open { source, way, gpu_bytes }, files), _) => {
            model::open(source, files, way, gpu_bytes).await.map(Some)
        }
        (Task::Answer(Ask::Write(write), _), Some(mut session)) => {
            session.write(&write).await?;
            Ok(Some(session))
        }
        (Task::Answer(Ask::Attention(head), _), Some(mut session)) => {
            session.attention(head).await?;
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
        // Nobody else is here: answers come one after the other.
        let session = SESSION.take();
        match done(task, session).await {
            Ok(session) => SESSION.set(session),
            // What failed is gone with its session: it is told once.
            Err(failure) => host::tell(&Tell::Failed(failure)),
        }
    }
}
