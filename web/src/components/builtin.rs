//! The built-in trainer's plan, below nanoGPT's, and the command that starts the run.

use leptos::prelude::*;

use super::dynamic::{flag, words};
use crate::{
    components::actions::CopyButton,
    state::{budget::Budget, builtin::BuiltinSummary, command},
    text::{self, t},
};

/// The panel with the built-in trainer's plan.
#[component]
pub fn BuiltinView(
    /// The calculator's state.
    budget: Budget,
) -> impl IntoView {
    let shown = budget.ask(BuiltinSummary::of_answer);
    // While a field is invalid, the words for the values before are hidden, and keep their place.
    let is_stale = move || !budget.is_entered();
    let say = move |part: fn(BuiltinSummary) -> String| words(move || shown.get().map_or_else(String::new, part));
    view! {
        <div class="builtin" class:stale=flag(is_stale) id="builtin" data-outcome=say(|shown| shown.outcome.to_owned())>
            <div class="builtin__words">
                <p class="builtin__answer" title=say(|shown| shown.bytes)>{say(|shown| shown.answer)}</p>
                <p class="builtin__detail">{say(|shown| shown.detail)}</p>
            </div>
            <CopyButton id="copy-train" label=t(text::BUILTIN_COPY)
                enabled=Signal::derive(move || !is_stale() && shown.with(|shown| shown.as_ref().is_some_and(|shown| shown.outcome != "unable")))
                content=move |()| Some(budget.with_options(command::train_command)) />
        </div>
    }
}
