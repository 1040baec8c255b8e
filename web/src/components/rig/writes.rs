//! Text generation with a run's newest checkpoint, which is fetched on demand and run in the page.

use headroom_protocol::{
    demo::plain::{self, OPEN, STOP},
    run::Checkpoint,
};
use leptos::prelude::*;

use super::RigContext;
use crate::{
    browser::{self, worker},
    components::dynamic::{flag, part, words},
    state::{
        format,
        memo::memo,
        rig::writes::{GenerationState, Stage, made, weights_bytes},
    },
    text::{self, say, t},
};

/// The panel to generate text, if the agent offers a checkpoint of the shown run.
#[component]
pub fn WritesPanel(
    /// The page's state.
    desk: RigContext,
) -> impl IntoView {
    let id = memo(move || {
        let id = desk.run()?;
        checkpoint_of(desk, &id).map(|_| id)
    });
    part(move || {
        // A different run needs a new worker for its model.
        worker::end();
        id.get().map(|id| panel(desk, id))
    })
}

/// A checkpoint, and the run's `max_iters` if known.
type CheckpointInfo = (Checkpoint, Option<u64>);

fn checkpoint_of(desk: RigContext, id: &str) -> Option<CheckpointInfo> {
    desk.events(|rig| {
        let run = &rig.runs.iter().find(|watched| watched.run.id == id)?.run;
        run.checkpoint.filter(|_| run.order.is_some()).map(|checkpoint| (checkpoint, run.max_iters))
    })
}

/// Describes a checkpoint by its iteration and download size.
fn said((checkpoint, max_iters): CheckpointInfo, say_it: fn(String, String) -> text::Text) -> String {
    say(&say_it(made(checkpoint.iter, max_iters), format::size(weights_bytes(checkpoint.bytes))))
}

fn panel(desk: RigContext, id: String) -> impl IntoView {
    let writes = RwSignal::new(GenerationState::default());
    let prompt = RwSignal::new(String::new());
    let shown = id.clone();
    let checkpoint = memo(move || checkpoint_of(desk, &shown));
    let id = StoredValue::new(id);
    let stage = memo(move || writes.with(|writes| writes.stage));
    let write = move || {
        // A loaded model generates another text, with a new seed.
        let is_open = stage.get_untracked() == Stage::Ready;
        if is_open {
            writes.update(GenerationState::write);
        } else {
            begin(desk, writes, &id.get_value());
        }
        worker::post(&plain::write(&prompt.get_untracked(), seed()));
    };
    let load = move |_| {
        writes.update(|writes| writes.stage = Stage::Closed);
        write();
    };
    let stop = move |_| match stage.get_untracked() {
        Stage::Writing => worker::post(STOP),
        _ => {
            worker::end();
            writes.set(GenerationState::default());
        }
    };
    let is_busy = move || matches!(stage.get(), Stage::Loading | Stage::Writing);
    let newer = memo(move || {
        let checkpoint = checkpoint.get()?;
        writes.with(|writes| writes.is_older_than(checkpoint.0.iter)).then(|| said(checkpoint, text::rig_writes_newer))
    });
    view! {
        <section class="panel writes" aria-labelledby="writes-title" data-testid="writes">
            <h2 class="panel-title" id="writes-title">{t(text::RIG_WRITES)}</h2>
            <p class="rig__hint" data-testid="writes-which">{words(move || which(checkpoint.get(), writes.with(|writes| writes.iter)))}</p>
            {part(move || newer.get().map(|newer| view! {
                <p class="rig__hint" role="status" data-testid="writes-newer">{newer} " "
                    <button type="button" class="button" id="writes-load" on:click=load>{t(text::RIG_WRITES_LOAD)}</button></p>
            }))}
            <div class="writes__form">
                <label for="writes-prompt">{t(text::RIG_WRITES_PROMPT)}</label>
                <textarea class="input writes__prompt" id="writes-prompt" rows="2" maxlength="2000" prop:value=words(move || prompt.get())
                    on:input:target=move |event| prompt.set(event.target().value())></textarea>
                <button type="button" class="button button--primary" id="writes-write" disabled=flag(is_busy) on:click=move |_| write()>{t(text::RIG_WRITES_WRITE)}</button>
                {part(move || is_busy().then(|| view! {
                    <button type="button" class="button" id="writes-stop" on:click=stop>{t(text::RIG_WRITES_STOP)}</button>
                }))}
            </div>
            <p class=words(move || if stage.get() == Stage::Failed { "rig__fault" } else { "rig__hint" }.to_owned()) role="status" data-testid="writes-said">
                {words(move || writes.with(status))}
            </p>
            {part(move || writes.with(|writes| !writes.text.is_empty()).then(|| view! {
                // A screen reader announces the text when it ends, and not every token.
                <p class="writes__text" tabindex="0" data-testid="writes-text">{words(move || writes.with(|writes| writes.text.clone()))}</p>
            }))}
        </section>
    }
}

/// Describes the loaded checkpoint, or else the one that would be fetched.
fn which(checkpoint: Option<CheckpointInfo>, open: Option<u64>) -> String {
    match (open, checkpoint) {
        (Some(iter), checkpoint) => {
            say(&text::rig_writes_loaded(made(iter, checkpoint.and_then(|(_, max_iters)| max_iters))))
        }
        (None, Some(checkpoint)) => said(checkpoint, text::rig_writes_fetches),
        (None, None) => String::new(),
    }
}

/// Describes the backend, the speed, and how the text ended.
fn status(writes: &GenerationState) -> String {
    if writes.stage == Stage::Loading && writes.said.is_empty() {
        return t(text::RIG_WRITES_STARTING).to_owned();
    }
    let mut status = writes.said.clone();
    for words in [&writes.rate, &writes.ended] {
        if !words.is_empty() {
            status.push_str(" · ");
            status.push_str(words);
        }
    }
    status
}

/// Starts a worker and requests the run's newest checkpoint.
fn begin(desk: RigContext, writes: RwSignal<GenerationState>, id: &str) {
    writes.update(GenerationState::begin);
    worker::begin_plain(move |heard_message| {
        // A removed panel ignores messages.
        writes.try_update(|writes| match heard_message {
            Ok(message) => writes.hear(&message),
            Err(reason) => writes.died(reason),
        });
    });
    let token = desk.connection.with_untracked(|connection| connection.token.clone()).unwrap_or_default();
    let (address, words) = (format!("api/runs/{id}/checkpoint"), format!("text-writes-{}.txt", browser::language()));
    worker::post_remote(OPEN, &address, &token, &words);
}

fn seed() -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the factor")]
    let seed = (browser::rig::chance() * 4_294_967_296.0) as u64;
    seed
}
