//! A run that ran out of memory: the watcher's diagnosis, the printed message, and a link to the page that simulates
//! the run.
//!
//! That page also offers every fix. Its program is as large as this one's and seldom needed, so it is not included
//! here.

use headroom_protocol::run::Diagnosis;
use leptos::prelude::*;

use super::RigContext;
use crate::{
    browser,
    components::dynamic::part_of,
    text::{self, t},
};

/// The panel of an out-of-memory error, if the run has one.
#[component]
pub fn Oom(
    /// The page's state.
    desk: RigContext,
    /// Id of the run.
    id: StoredValue<String>,
) -> impl IntoView {
    let message = move || {
        id.with_value(|id| {
            desk.events(|rig| {
                let run = &rig.runs.iter().find(|watched| watched.run.id == *id)?.run;
                // A config that contradicts the run's output cannot explain its failure.
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
        // English if the watcher has no text in the page's language.
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
