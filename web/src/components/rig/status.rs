//! The status line of the connection to the agent, and problems with the agent's data sources.

use headroom_protocol::state::DriverState;
use leptos::prelude::*;

use super::{PageRequest, RigContext};
use crate::{
    components::{
        dynamic::{part_of, some_words, words},
        rig_charts::ZONE,
    },
    state::{
        memo::memo,
        rig::{Rig, connection::Stage, messages, values},
    },
    text::{self, say, t},
};

/// The page's status line.
#[component]
pub fn Status(
    /// The page's state.
    desk: RigContext,
) -> impl IntoView {
    let stands = move || {
        let now_ms = desk.now_ms.get();
        desk.connection.with(|connection| messages::connection(connection, now_ms))
    };
    let look = memo(move || stands().0);
    let can_hurry = move || {
        desk.connection.with(|connection| {
            matches!(connection.stage, Stage::Waiting { .. } | Stage::Refused { .. } | Stage::NoAgent)
        })
    };
    let as_of = move || {
        let now_ms = desk.now_ms.get();
        desk.connection.with(|connection| {
            let is_shown = connection.was_live && connection.is_old(now_ms);
            is_shown.then(|| say(&text::rig_as_of(ZONE.moment(connection.heard_ms, true))))
        })
    };
    let name =
        move || desk.about(|rig| if rig.name.is_empty() { t(text::RIG_HEADING).to_owned() } else { rig.name.clone() });
    view! {
        <div class="rig__head" id="answer" tabindex="-1">
            <h1 class="rig__name" data-testid="rig-name">{words(name)}</h1>
            <p class=words(move || format!("rig__state rig__state--{}", look.get())) data-testid="connection">
                {words(move || stands().1)}
            </p>
            <p class="rig__as-of" data-testid="as-of">{some_words(as_of)}</p>
            // Announced once per change, and not every second while waiting.
            <p class="visually-hidden" role="status">
                {words(move || { look.get(); desk.connection.with(|connection| messages::connection(connection, desk.now_ms.get_untracked())).1 })}
            </p>
            {part_of(can_hurry, move |can_hurry| can_hurry.then(|| view! {
                <button type="button" class="button" id="again" on:click=move |_| desk.ask.run(PageRequest::Again)>{t(text::RIG_AGAIN)}</button>
            }))}
        </div>
    }
}

/// Missing data sources of the agent, each with a hint.
#[component]
pub fn Trouble(
    /// The page's state.
    desk: RigContext,
) -> impl IntoView {
    let troubles = move || {
        desk.about(|rig| {
            let state = rig.state.as_ref();
            let driver = state.and_then(|state| messages::driver(&state.driver));
            let history = state.and_then(|state| messages::history(&state.history));
            let is_ready = state.is_some_and(|state| matches!(state.driver, DriverState::Ready { .. }));
            let none = (is_ready && rig.gpus.is_empty()).then(|| t(text::RIG_NO_CARDS).to_owned());
            let lost = (rig.n_lost > 0).then(|| say(&text::rig_lost(rig.n_lost)));
            [driver, none, history, lost].into_iter().flatten().collect::<Vec<_>>()
        })
    };
    part_of(troubles, |troubles| {
        troubles
            .into_iter()
            .map(|trouble| view! { <p class="rig__trouble" role="status" data-testid="trouble">{trouble}</p> })
            .collect_view()
    })
}

/// Facts about the machine.
#[component]
pub fn About(
    /// The page's state.
    desk: RigContext,
) -> impl IntoView {
    let driver = |rig: &Rig| match &rig.state.as_ref()?.driver {
        DriverState::Ready { driver_version, cuda_version, .. } => {
            let cuda = cuda_version.map(|(major, minor)| format!(" · CUDA {major}.{minor}")).unwrap_or_default();
            Some(format!("{}{cuda}", say(&text::rig_driver(driver_version.as_str()))))
        }
        _ => None,
    };
    let host = move || {
        desk.slow(|rig| {
            let Some(host) = &rig.host else { return String::new() };
            let size = |bytes: &u64| crate::state::format::size(*bytes);
            let memory = text::rig_host(
                values::reading(Some(&host.cpu_percent), |percent| values::value(*percent, 0, "%")),
                values::reading(Some(&host.memory_used_bytes), size),
                values::reading(Some(&host.memory_total_bytes), size),
            );
            let disk = text::rig_disk(values::reading(Some(&host.disk_free_bytes), size));
            format!("{} · {}", say(&memory), say(&disk))
        })
    };
    let agent = move || {
        desk.about(|rig| {
            let agent = (!rig.agent.is_empty()).then(|| say(&text::rig_about(rig.agent.as_str())));
            [agent, driver(rig)].into_iter().flatten().collect::<Vec<_>>().join(" · ")
        })
    };
    let can_forget = move || desk.connection.with(|connection| connection.token.is_some());
    let may_only_view = move || desk.about(|rig| rig.scope == Some(headroom_protocol::Scope::View));
    view! {
        <footer class="rig__about" data-testid="about">
            <p>{words(host)}</p>
            <p>{words(agent)}</p>
            {part_of(may_only_view, |may_only_view| may_only_view.then(|| view! { <p>{t(text::RIG_MAY_VIEW)}</p> }))}
            {part_of(can_forget, move |can_forget| can_forget.then(|| view! {
                <button type="button" class="button button--quiet" id="forget" on:click=move |_| desk.ask.run(PageRequest::Forget)>{t(text::RIG_FORGET)}</button>
            }))}
        </footer>
    }
}
