//! What is fetched besides the stream: the minute before the page was opened, a run's losses, and ranges of history.

use leptos::{prelude::*, task::spawn_local};

use super::client::Client;
use crate::{
    agent_client::rest,
    components::rig::Fetched,
    state::rig::{card::RECENT_MS, plot::Range},
};

/// Points of a chart; it has as many columns.
const POINTS: u64 = 600;
/// Points of the minutes before the page was opened: one a second.
const RECENT_POINTS: u64 = 120;
/// Live seconds reach back an hour; well before that is over, what follows now is fetched anew.
const STALE_AFTER_MS: u64 = 1_800_000;

/// Keeps all of it in step with what is shown.
pub fn keep_history(client: Client) {
    let desk = client.desk;
    let live = Memo::new(move |_| {
        desk.connection.with(|connection| connection.stage == crate::state::rig::connection::Stage::Live)
    });

    // The sparklines of a page that has just been opened, and after a restart that nobody recorded.
    Effect::new(move |_| {
        if live.get() {
            let now_ms = desk.agent_now_ms_untracked();
            let cards = desk.look(|rig| rig.cards.iter().map(|card| card.gpu.uuid.clone()).collect::<Vec<_>>());
            spawn_local(async move {
                for uuid in cards {
                    let from_ms = now_ms.saturating_sub(RECENT_MS);
                    let Ok(history) = rest::history(&client.token(), &uuid, from_ms, now_ms, RECENT_POINTS).await
                    else {
                        return;
                    };
                    if let Some(changed) = desk.change(|rig| rig.take_history(&history)) {
                        client.draw(changed);
                    }
                }
            });
        }
    });

    // The losses of the run that is shown.
    let run = Memo::new(move |_| desk.run());
    Effect::new(move |_| {
        let (Some(id), true) = (run.get(), live.get()) else { return };
        let is_whole = desk.look(|rig| rig.runs.iter().any(|watched| watched.run.id == id && watched.is_whole));
        if !is_whole {
            spawn_local(async move {
                let Ok(events) = rest::events(&client.token(), &id).await else { return };
                if let Some(changed) = desk.change(|rig| rig.take_losses(&id, &events)) {
                    client.draw(changed);
                }
            });
        }
    });

    // History of the card that is looked at. What follows now moves on by itself; half an hour later it is fetched anew.
    let generation = Memo::new(move |_| desk.now_ms.get() / STALE_AFTER_MS);
    let looked_at = Memo::new(move |_| (desk.card(), desk.view.with(|view| view.window), generation.get(), live.get()));
    Effect::new(move |_| {
        let (Some(uuid), window, _, true) = looked_at.get() else { return };
        let range = desk.view.with_untracked(|view| view.range(desk.agent_now_ms_untracked()));
        let is_same = move || looked_at.get_untracked().1 == window;
        spawn_local(async move {
            let fetched = fetch(client, &uuid, range).await;
            // Somebody may look elsewhere by now.
            if is_same() {
                desk.history.set(fetched);
            }
        });
    });

    // And of the card of the run that is shown.
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
                desk.run_history.set(fetched);
            }
        });
    });
}

async fn fetch(client: Client, uuid: &str, range: Range) -> Fetched {
    match rest::history(&client.token(), uuid, range.from_ms, range.to_ms, POINTS).await {
        Ok(history) => Fetched::History(history),
        Err(message) => Fetched::Failed(message),
    }
}
