//! What stands in the place of the cards while the page is not let in: how to be, or why not.

use leptos::prelude::*;

use super::{Ask, Desk};
use crate::{
    browser,
    components::dynamic::{IntoPart, part_of, words},
    state::rig::{
        connection::{Fault, Stage},
        words as said,
    },
    text::{self, t},
};

/// The command that starts an agent.
const SERVE: &str = "headroom serve";

/// What is in the way.
#[derive(Clone, Debug, PartialEq)]
enum Closed {
    Unpaired(Option<Fault>),
    Refused(String),
    Mismatch,
    NoAgent,
}

/// The panel.
#[component]
pub fn Access(
    /// The page.
    desk: Desk,
) -> impl IntoView {
    let closed = move || {
        desk.connection.with(|connection| {
            Some(match &connection.stage {
                Stage::Unpaired(fault) => Closed::Unpaired(fault.clone()),
                Stage::Refused { message, .. } => Closed::Refused(message.clone()),
                Stage::Mismatch(_) => Closed::Mismatch,
                Stage::NoAgent => Closed::NoAgent,
                _ => return None,
            })
        })
    };
    part_of(closed, move |closed| {
        closed.map(|closed| {
            let inside = match closed {
                Closed::Unpaired(fault) => unpaired(desk, fault).into_part(),
                Closed::Refused(message) => view! { <p role="alert">{message}</p> }.into_part(),
                Closed::Mismatch => view! {
                    <p>{t(text::RIG_MISMATCH_HINT)}</p>
                    <p><button type="button" class="button button--primary" id="reload" on:click=|_| browser::rig::reload()>{t(text::RIG_RELOAD)}</button></p>
                }
                .into_part(),
                Closed::NoAgent => view! {
                    <p>{t(text::RIG_NO_AGENT_LEAD)}</p>
                    <pre class="rig__command" tabindex="0">{SERVE}</pre>
                    <p>{t(text::RIG_NO_AGENT_THEN)}</p>
                }
                .into_part(),
            };
            view! { <section class="panel rig__access" data-testid="access" aria-label=t(text::RIG_CONNECT)>{inside}</section> }
        })
    })
}

fn unpaired(desk: Desk, fault: Option<Fault>) -> impl IntoView {
    let typed = RwSignal::new(String::new());
    let fault = fault.map(|fault| view! { <p class="rig__fault" role="alert">{said::fault(&fault)}</p> });
    let connect = move |event: leptos::ev::SubmitEvent| {
        event.prevent_default();
        let token = typed.get_untracked().trim().to_owned();
        if !token.is_empty() {
            desk.ask.run(Ask::Token(token));
        }
    };
    view! {
        {fault}
        <p>{t(text::RIG_UNPAIRED_LEAD)}</p>
        <form class="rig__pair" on:submit=connect>
            <label for="token">{t(text::RIG_TOKEN)}</label>
            <input class="input rig__token" id="token" type="password" autocomplete="off" spellcheck="false" autocapitalize="off"
                maxlength="512" aria-describedby="token-kept" prop:value=words(move || typed.get())
                on:input:target=move |event| typed.set(event.target().value()) />
            <button type="submit" class="button button--primary" id="connect">{t(text::RIG_CONNECT)}</button>
            <p class="rig__hint" id="token-kept">{t(text::RIG_TOKEN_KEPT)}</p>
        </form>
    }
}
