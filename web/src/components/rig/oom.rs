//! A run that died of an out-of-memory error: what its watcher made of the message, what it printed, and the way to the
//! page that simulates the run anew, with every change. That page's program is as large as this one's, and seldom needed.

use headroom_shared::protocol::run::Diagnosis;
use leptos::prelude::*;

use super::Desk;
use crate::{
    browser,
    components::dynamic::part_of,
    text::{self, t},
};

/// The panel, where there is such a message.
#[component]
pub fn Oom(
    /// The page.
    desk: Desk,
    /// The run.
    id: StoredValue<String>,
) -> impl IntoView {
    let message = move || {
        id.with_value(|id| {
            desk.events(|rig| {
                let run = &rig.runs.iter().find(|watched| watched.run.id == *id)?.run;
                // A config that the run contradicts explains nothing of it.
                let config = run.config.clone().filter(|_| run.contradiction.is_none());
                Some((run.oom.clone()?, config.unwrap_or_default(), run.diagnosis.clone()))
            })
        })
    };
    part_of(message, |message| message.map(|(message, config, diagnosis)| panel(message, config, diagnosis)))
}

fn panel(message: String, config: String, diagnosis: Option<Diagnosis>) -> impl IntoView {
    let printed = message.clone();
    let said = diagnosis.map(|diagnosis| {
        // English where its watcher knew no other.
        let said = diagnosis.worded(&browser::language());
        view! {
            <div lang=said.language data-testid="diagnosis">
                <p>{said.sentence}</p>
                {said.change.map(|change| view! { <p>{change}</p> })}
            </div>
            {diagnosis.command.map(|command| view! { <pre class="rig__command" tabindex="0" data-testid="fix">{command}</pre> })}
        }
    });
    let keep = move |_| browser::keep_message(&message, &config);
    view! {
        <div class="oom" role="alert" data-testid="oom">
            <h3 class="oom__title">{t(text::RIG_OOM)}</h3>
            {said}
            <p class="oom__message" tabindex="0">{printed}</p>
            <a class="button button--primary" id="oom-all" href=format!("./diagnose.html{}", browser::query()) on:click=keep>{t(text::RIG_OOM_ALL)}</a>
        </div>
    }
}
