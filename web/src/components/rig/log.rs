//! The events since the page was opened, newest first.

use leptos::prelude::*;

use super::RigContext;
use crate::{
    components::{
        dynamic::{IntoPart, part_of},
        rig_charts::ZONE,
    },
    state::rig::messages,
    text::{self, t},
};

/// The list of events.
#[component]
pub fn Log(
    /// The page's state.
    desk: RigContext,
) -> impl IntoView {
    let lines = move || {
        desk.events(|rig| {
            rig.log.iter().filter_map(|event| Some((event.time_ms, messages::event(rig, event)?))).collect::<Vec<_>>()
        })
    };
    view! {
        <section class="panel" aria-labelledby="log-title">
            <h2 class="panel-title" id="log-title">{t(text::RIG_HAPPENED)}</h2>
            {part_of(lines, |lines| {
                let lines: Vec<_> = lines.into_iter().map(|(time_ms, words)| view! {
                    <li class="log__line"><span class="log__time">{ZONE.moment(time_ms, true)}</span> <span>{words}</span></li>
                }).collect();
                match lines.is_empty() {
                    true => view! { <p class="rig__hint">{t(text::RIG_NOTHING_HAPPENED)}</p> }.into_part(),
                    false => view! { <ol class="log rig__scroll" tabindex="0" aria-labelledby="log-title" data-testid="log">{lines}</ol> }.into_part(),
                }
            })}
        </section>
    }
}
