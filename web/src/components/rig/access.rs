//! The panel shown instead of the GPUs while the page has no access, with instructions or the reason.

use leptos::prelude::*;

use super::{PageRequest, RigContext};
use crate::{
    browser,
    components::{
        coded::coded,
        dynamic::{IntoPart, part_of, words},
    },
    state::rig::{
        connection::{Fault, Stage},
        messages,
    },
    text::{self, t},
};

/// The command that starts an agent.
const SERVE: &str = "headroom serve";

/// The reason why there is no access.
#[derive(Clone, Debug, PartialEq)]
enum NoAccessReason {
    Unpaired(Option<Fault>),
    Refused(String),
    Mismatch,
    NoAgent,
}

/// The panel shown without access.
#[component]
pub fn Access(
    /// The page's state.
    desk: RigContext,
) -> impl IntoView {
    let closed = move || {
        desk.connection.with(|connection| {
            Some(match &connection.stage {
                Stage::Unpaired(fault) => NoAccessReason::Unpaired(fault.clone()),
                Stage::Refused { message, .. } => NoAccessReason::Refused(message.clone()),
                Stage::Mismatch(_) => NoAccessReason::Mismatch,
                Stage::NoAgent => NoAccessReason::NoAgent,
                _ => return None,
            })
        })
    };
    part_of(closed, move |closed| {
        closed.map(|closed| {
            let inside = match closed {
                NoAccessReason::Unpaired(fault) => unpaired(desk, fault).into_part(),
                NoAccessReason::Refused(message) => view! { <p role="alert">{message}</p> }.into_part(),
                NoAccessReason::Mismatch => view! {
                    <p>{t(text::RIG_MISMATCH_HINT)}</p>
                    <p><button type="button" class="button button--primary" id="reload" on:click=|_| browser::rig::reload()>{t(text::RIG_RELOAD)}</button></p>
                }
                .into_part(),
                NoAccessReason::NoAgent => view! {
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

fn unpaired(desk: RigContext, fault: Option<Fault>) -> impl IntoView {
    let typed = RwSignal::new(String::new());
    let fault = fault.map(|fault| view! { <p class="rig__fault" role="alert">{messages::fault(&fault)}</p> });
    let connect = move |event: leptos::ev::SubmitEvent| {
        event.prevent_default();
        let token = typed.get_untracked().trim().to_owned();
        if !token.is_empty() {
            desk.ask.run(PageRequest::Token(token));
        }
    };
    view! {
        {fault}
        <p>{coded(t(text::RIG_UNPAIRED_LEAD))}</p>
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
