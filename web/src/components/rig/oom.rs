//! A run that died of an out-of-memory error: what it was, and the change that costs least.

use leptos::prelude::*;

use super::Desk;
use crate::{
    browser,
    components::dynamic::part,
    state::{
        diagnosis::{Shown, shown},
        fixes::applied,
        session::Session,
    },
    text::{self, say, t},
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
    part(move || {
        message.get().map(|(message, config)| {
            let found = shown(&message, &config);
            panel(message, config, found)
        })
    })
}

fn panel(message: String, config: String, found: Option<Shown>) -> impl IntoView {
    let sentence = found.as_ref().map(|shown| shown.sentence.clone()).unwrap_or_default();
    let fix = found.and_then(|shown| {
        let fix = shown.fixes?.fixes.into_iter().next()?;
        let session = shown.session?;
        let after = applied(&session, &fix.changes, &say(&text::fix_why(session.options.gpu.as_str())));
        Some(view! {
            <p class="oom__fix">
                {t(text::RIG_OOM_FIX)} ": " <code>{fix.settings.replace('\n', ", ")}</code> " · " {fix.facts}
            </p>
            {budget_link(after)}
        })
    });
    let printed = message.clone();
    let keep = move |_| browser::keep_message(&message, &config);
    view! {
        <div class="oom" role="alert" data-testid="oom">
            <h3 class="oom__title">{t(text::RIG_OOM)}</h3>
            <p>{sentence}</p>
            {fix}
            " "
            <a class="button" id="oom-all" href=format!("./diagnose.html{}", browser::query()) on:click=keep>{t(text::RIG_OOM_ALL)}</a>
            <details class="oom__message">
                <summary>{t(text::RIG_OOM_MESSAGE)}</summary>
                <p>{printed}</p>
            </details>
        </div>
    }
}

/// A link to the calculator with the change made.
fn budget_link(session: Session) -> impl IntoView {
    let href = format!("./{}#{}", browser::query(), session.fragment());
    let keep = move |_| browser::keep_text(&session.fragment(), &session.text);
    view! { <a class="button button--primary" id="oom-plan" href=href on:click=keep>{t(text::RIG_OPEN_PLAN)}</a> }
}
