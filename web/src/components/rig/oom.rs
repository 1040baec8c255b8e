//! A run that died of an out-of-memory error: what it printed, and the way to the page that simulates the run, names the tensor
//! and finds the change that costs least. That page's program is as large as this one's, and seldom needed.

use leptos::prelude::*;

use super::Desk;
use crate::{
    browser,
    components::dynamic::part,
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
    let message = Memo::new(move |_| {
        id.with_value(|id| {
            desk.events(|rig| {
                let run = &rig.runs.iter().find(|watched| watched.run.id == *id)?.run;
                Some((run.oom.clone()?, run.config.clone().unwrap_or_default()))
            })
        })
    });
    part(move || message.get().map(|(message, config)| panel(message, config)))
}

fn panel(message: String, config: String) -> impl IntoView {
    let printed = message.clone();
    let keep = move |_| browser::keep_message(&message, &config);
    view! {
        <div class="oom" role="alert" data-testid="oom">
            <h3 class="oom__title">{t(text::RIG_OOM)}</h3>
            <p class="oom__message" tabindex="0">{printed}</p>
            <a class="button button--primary" id="oom-all" href=format!("./diagnose.html{}", browser::query()) on:click=keep>{t(text::RIG_OOM_ALL)}</a>
        </div>
    }
}
