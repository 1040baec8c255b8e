//! Data fetched besides the event stream: the minute before the page was opened, and a run's losses and memory.

use leptos::{prelude::*, task::spawn_local};

use std::{rc::Rc, time::Duration};

use super::client::Client;
use crate::{
    agent_client::rest,
    components::rig_charts::{Fetch, HistoryChart},
    state::{
        memo::memo,
        rig::{
            Rig,
            connection::Stage,
            fetched::{FetchedHistory, RunHistory},
            gpu::{MonitoredGpu, SECOND_MS},
            messages,
            processes::{predicted_bytes, run_on},
        },
        rig_charts::{plot::PlannedPeak, view::Range},
    },
};

/// Number of points of a chart, which equals its number of columns.
const POINTS: u64 = 600;
/// Number of attempts to fill gaps in the last minutes. Gaps exist because the requested history was not written yet.
const FILLS_MAX: u32 = 4;
/// Time between two attempts. History is written once per second, and a slow disk may take as long again.
const FILL_EVERY: Duration = Duration::from_secs(3);
/// Time in milliseconds before a failed request is repeated.
const RETRY_MS: u64 = 10_000;
/// Age in milliseconds after which a run's memory is fetched again. Live data reach back one hour, so this is well
/// before a gap appears.
const STALE_AFTER_MS: u64 = 1_800_000;

/// Fetches the data for what is shown.
pub fn keep_history(client: Client) {
    let desk = client.desk;
    let live = is_live(client);

    // Fills the sparklines after the page was opened, and after a restart during which nothing was recorded.
    Effect::new(move |_| {
        if live.get() {
            fill(client, FILLS_MAX);
        }
    });

    // Fetches the losses of the shown run and of the compared runs. Failed requests are repeated.
    let run = memo(move || desk.run());
    let again = memo(move || desk.now_ms.get() / RETRY_MS);
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

    // Fetches the memory of the shown run's GPU. Live data extend it; half an hour later it is fetched again.
    let generation = memo(move || desk.now_ms.get() / STALE_AFTER_MS);
    let of_run = memo(move || {
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

/// Fetches the gaps in the last minutes of all GPUs, with at most `n_fills` attempts.
fn fill(client: Client, n_fills: u32) {
    let desk = client.desk;
    spawn_local(async move {
        let now_ms = desk.agent_now_ms_untracked();
        let lacks = |gpu: &MonitoredGpu| Some((gpu.info.uuid.clone(), gpu.missing(now_ms)?));
        for (uuid, range) in desk.look(|rig| rig.gpus.iter().filter_map(lacks).collect::<Vec<_>>()) {
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

async fn fetch(client: Client, uuid: &str, range: Range) -> FetchedHistory {
    match rest::history(&client.token(), uuid, range.from_ms, range.to_ms, POINTS).await {
        Ok(history) => FetchedHistory::History(history),
        Err(message) => FetchedHistory::Failed(message),
    }
}

fn is_live(client: Client) -> Memo<bool> {
    memo(move || client.desk.connection.with(|connection| connection.stage == Stage::Live))
}

/// Renders the history chart of the GPUs, with data from the agent.
pub fn chart(client: Client) -> impl IntoView {
    let desk = client.desk;
    let fetch: Fetch =
        Rc::new(move |path| Box::pin(async move { rest::body(path.trim_start_matches('/'), &client.token()).await }));
    let gpus = Signal::derive(move || desk.about(|rig| rig.gpus.iter().map(|gpu| gpu.info.clone()).collect()));
    let live = is_live(client);
    // Without a connection the time stops, so that no requests are sent.
    let newest_ms = Memo::new(move |last: Option<&u64>| match live.get() {
        true => desk.agent_now_ms(),
        false => last.copied().unwrap_or_default(),
    });
    // The chart shows the memory of the whole GPU, so a predicted peak includes the memory of other processes.
    let planned = Signal::derive(move || {
        let of = |rig: &Rig, gpu: &MonitoredGpu| {
            let planned = PlannedPeak { bytes: predicted_bytes(rig, gpu)?, from_ms: run_on(rig, gpu)?.started_ms };
            Some((gpu.info.uuid.clone(), planned))
        };
        desk.slow(|rig| rig.gpus.iter().filter_map(|gpu| of(rig, gpu)).collect::<Vec<_>>())
    });
    let paused = Signal::derive(move || {
        desk.about(|rig| rig.state.as_ref().and_then(|state| messages::history(&state.history)))
    });
    view! { <HistoryChart gpus fetch newest_ms planned paused /> }
}
