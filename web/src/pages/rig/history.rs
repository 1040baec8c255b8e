//! What is fetched besides the stream: the minute before the page was opened, a run's losses and its memory.

use leptos::{prelude::*, task::spawn_local};

use std::{rc::Rc, time::Duration};

use super::client::Client;
use crate::{
    agent_client::rest,
    components::rig_charts::{Fetch, HistoryChart},
    state::{
        rig::{
            Rig,
            card::{Card, SECOND_MS},
            connection::Stage,
            fetched::{Fetched, RunHistory},
            processes::{predicted_bytes, run_on},
            words,
        },
        rig_charts::{plot::Planned, view::Range},
    },
};

/// Points of a chart; it has as many columns.
const POINTS: u64 = 600;
/// The last minutes have holes where history had not written yet what it was asked for; those are asked for so many
/// times in all.
const FILLS_MAX: u32 = 4;
/// Between two of them: history is written once a second, and a disk may take as long again.
const FILL_EVERY: Duration = Duration::from_secs(3);
/// What did not arrive is asked for again after this.
const RETRY_MS: u64 = 10_000;
/// Live seconds reach back an hour; well before that is over, what follows now is fetched anew.
const STALE_AFTER_MS: u64 = 1_800_000;

/// Keeps all of it in step with what is shown.
pub fn keep_history(client: Client) {
    let desk = client.desk;
    let live = is_live(client);

    // The sparklines of a page that has just been opened, and after a restart that nobody recorded.
    Effect::new(move |_| {
        if live.get() {
            fill(client, FILLS_MAX);
        }
    });

    // The losses of the run that is shown, and of those beside it. Where they do not arrive, they are asked for again.
    let run = Memo::new(move |_| desk.run());
    let again = Memo::new(move |_| desk.now_ms.get() / RETRY_MS);
    let under_way = StoredValue::new(Vec::<String>::new());
    Effect::new(move |before: Option<Option<String>>| {
        let (shown, is_live) = (run.get(), live.get());
        if before.is_some_and(|before| before != shown) {
            desk.losses_fault.set(None);
        }
        let Some(id) = shown.clone().filter(|_| is_live) else { return shown };
        let mut wanted = desk.compared.with(|compared| compared.beside(&id).cloned().collect::<Vec<_>>());
        wanted.push(id);
        desk.look(|rig| wanted.retain(|id| rig.runs.iter().any(|watched| watched.run.id == *id && !watched.is_whole)));
        if !wanted.is_empty() {
            again.get();
        }
        for id in wanted {
            if under_way.with_value(|under_way| under_way.contains(&id)) {
                continue;
            }
            under_way.update_value(|under_way| under_way.push(id.clone()));
            spawn_local(async move {
                let answer = rest::events(&client.token(), &id).await;
                under_way.update_value(|under_way| under_way.retain(|under_way| *under_way != id));
                if run.get_untracked().as_ref() == Some(&id) {
                    desk.losses_fault.set(answer.as_ref().err().cloned());
                }
                let changed = answer.ok().and_then(|events| desk.change(|rig| rig.take_losses(&id, &events)));
                if let Some(changed) = changed {
                    client.draw(changed);
                }
            });
        }
        shown
    });

    // Memory of the card of the run that is shown. What follows now moves on by itself; half an hour later it is fetched anew.
    let generation = Memo::new(move |_| desk.now_ms.get() / STALE_AFTER_MS);
    let of_run = Memo::new(move |_| {
        let id = run.get()?;
        let (gpu, ended_ms) = desk.events(|rig| {
            let run = &rig.runs.iter().find(|watched| watched.run.id == id)?.run;
            Some((run.gpus.first().cloned()?, run.ended_ms))
        })?;
        Some((id, gpu, ended_ms, generation.get(), live.get()))
    });
    Effect::new(move |_| {
        let Some((id, gpu, .., true)) = of_run.get() else { return };
        let Some(range) = untrack(|| desk.range_of_run(&id)) else { return };
        spawn_local(async move {
            let fetched = fetch(client, &gpu, range).await;
            if of_run.get_untracked().is_some_and(|(now, ..)| now == id) {
                desk.run_history.set(RunHistory::new(id, fetched));
            }
        });
    });
}

/// Asks for what the last minutes of the cards lack, and so many times in all for what they lack still.
fn fill(client: Client, n_fills: u32) {
    let desk = client.desk;
    spawn_local(async move {
        let now_ms = desk.agent_now_ms_untracked();
        let lacks = |card: &Card| Some((card.gpu.uuid.clone(), card.missing(now_ms)?));
        for (uuid, range) in desk.look(|rig| rig.cards.iter().filter_map(lacks).collect::<Vec<_>>()) {
            let n_points = range.span_ms() / SECOND_MS;
            let asked = rest::history(&client.token(), &uuid, range.from_ms, range.to_ms, n_points).await;
            let Ok(history) = asked else { break };
            if let Some(changed) = desk.change(|rig| rig.take_history(&history)) {
                client.draw(changed);
            }
        }
        if n_fills > 1 {
            set_timeout(move || fill(client, n_fills - 1), FILL_EVERY);
        }
    });
}

async fn fetch(client: Client, uuid: &str, range: Range) -> Fetched {
    match rest::history(&client.token(), uuid, range.from_ms, range.to_ms, POINTS).await {
        Ok(history) => Fetched::History(history),
        Err(message) => Fetched::Failed(message),
    }
}

fn is_live(client: Client) -> Memo<bool> {
    Memo::new(move |_| client.desk.connection.with(|connection| connection.stage == Stage::Live))
}

/// The cards' history, fed by the agent.
pub fn chart(client: Client) -> impl IntoView {
    let desk = client.desk;
    let fetch: Fetch =
        Rc::new(move |path| Box::pin(async move { rest::body(path.trim_start_matches('/'), &client.token()).await }));
    let gpus = Signal::derive(move || desk.about(|rig| rig.cards.iter().map(|card| card.gpu.clone()).collect()));
    let live = is_live(client);
    // It stands still where nobody answers, so that nobody is asked.
    let newest_ms = Memo::new(move |last: Option<&u64>| match live.get() {
        true => desk.agent_now_ms(),
        false => last.copied().unwrap_or_default(),
    });
    // What is drawn is the whole card's: the share of others stands below the plan's.
    let planned = Signal::derive(move || {
        let of = |rig: &Rig, card: &Card| {
            let planned = Planned { bytes: predicted_bytes(rig, card)?, from_ms: run_on(rig, card)?.started_ms };
            Some((card.gpu.uuid.clone(), planned))
        };
        desk.slow(|rig| rig.cards.iter().filter_map(|card| of(rig, card)).collect::<Vec<_>>())
    });
    let paused =
        Signal::derive(move || desk.about(|rig| rig.state.as_ref().and_then(|state| words::history(&state.history))));
    view! { <HistoryChart gpus fetch newest_ms planned paused /> }
}
