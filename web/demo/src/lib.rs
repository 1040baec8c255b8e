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

use headroom_shared::demo::Ask;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen_futures::spawn_local;
use web_sys::File;

use session::Session;

/// What was asked and not yet answered.
#[derive(Default)]
struct Queue {
    asks: VecDeque<(Ask, Vec<File>)>,
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
    let is_running = QUEUE.with_borrow_mut(|queue| {
        queue.asks.push_back((ask, files));
        std::mem::replace(&mut queue.is_running, true)
    });
    if !is_running {
        spawn_local(answer_all());
    }
}

/// Whether something waits that ends a text which is being written.
fn is_interrupted() -> bool {
    QUEUE.with_borrow(|queue| queue.asks.iter().any(|(ask, _)| matches!(ask, Ask::Stop | Ask::Write(_))))
}

/// The pace that was asked for since this was last called.
fn asked_pace() -> Option<u32> {
    QUEUE.with_borrow_mut(|queue| {
        let mut asked = None;
        queue.asks.retain(|(ask, _)| match ask {
            Ask::Pace(pause_millis) => {
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

async fn answer_all() {
    loop {
        let next = QUEUE.with_borrow_mut(|queue| {
            let next = queue.asks.pop_front();
            queue.is_running = next.is_some();
            next
        });
        let Some((ask, files)) = next else { return };
        // Nobody else is here: answers come one after the other.
        let session = SESSION.take();
        let session = match (ask, session) {
            (Ask::Open { source, way, gpu_bytes }, _) => match model::open(source, files, way, gpu_bytes).await {
                Ok(session) => Some(session),
                Err(failure) => {
                    host::tell(&headroom_shared::demo::Tell::Failed(failure));
                    None
                }
            },
            (Ask::Write(write), Some(mut session)) => {
                session.write(&write).await;
                Some(session)
            }
            (Ask::Attention(head), Some(mut session)) => {
                session.attention(head).await;
                Some(session)
            }
            (Ask::Stop | Ask::Pace(_) | Ask::Write(_) | Ask::Attention(_), session) => session,
        };
        SESSION.set(session);
    }
}
