//! The built-in trainer's answer, below nanoGPT's, and the command that starts it.

use leptos::prelude::*;

use super::dynamic::words;
use crate::{
    components::actions::CopyButton,
    state::{budget::Budget, builtin::Builtin, command},
    text::{self, t},
};

/// The strip. It keeps its height whatever it says, and has room for all of it.
#[component]
pub fn BuiltinView(
    /// The page.
    budget: Budget,
) -> impl IntoView {
    let shown = budget.ask(Builtin::of_answer);
    let say = move |part: fn(Builtin) -> String| words(move || shown.get().map_or_else(String::new, part));
    view! {
        <div class="builtin" id="builtin" data-outcome=say(|shown| shown.outcome.to_owned())>
            <p class="builtin__answer" title=say(|shown| shown.bytes)>{say(|shown| shown.answer)}</p>
            <p class="builtin__detail" title=say(|shown| shown.detail.clone())>{say(|shown| shown.detail)}</p>
            <CopyButton id="copy-train" label=t(text::BUILTIN_COPY)
                content=move |()| Some(budget.with_options(command::train_command)) />
        </div>
    }
}
