//! The changes to nanoGPT's code that the plan assumes: the patch, and a way to undo each.

use headroom_shared::advice::{CodeChange, changes_text, patch_of};
use leptos::prelude::*;

use super::{
    actions::CopyButton,
    dynamic::{part_of, words},
};
use crate::{
    browser,
    state::{budget::Budget, needs},
    text::{self, say, t},
};

/// The card; nothing while stock nanoGPT runs the plan.
#[component]
pub fn CodeChanges(
    /// The page.
    budget: Budget,
) -> impl IntoView {
    let needed = budget.ask(|answer| answer.plan().map(needs::of_plan).unwrap_or_default());
    part_of(move || needed.get(), move |needed| (!needed.is_empty()).then(|| card(budget, needed)))
}

fn card(budget: Budget, needed: Vec<CodeChange>) -> impl IntoView {
    let patch = patch_of(&needed);
    let (copied, linked, shown) = (patch.clone(), patch.clone(), patch);
    let lead = say(&text::still_to_do_lead(changes_text(&needed)));
    let undo = move |change: CodeChange| {
        budget.pinned.set(None);
        budget.session.update(|session| needs::undo(session, change));
        // The button goes with its row.
        browser::focus("answer");
    };
    let rows: Vec<_> = needed
        .into_iter()
        .map(|change| {
            let label = say(&text::undo_change(change.text()));
            view! {
                <li class="changes__change" data-change=change.file()>
                    <code>{change.file()}</code> <span>{t(change.text())}</span>
                    <button type="button" class="button" aria-label=label on:click=move |_| undo(change)>{t(text::UNDO)}</button>
                </li>
            }
        })
        .collect();
    view! {
        <section class="changes" data-testid="code-changes" aria-labelledby="changes-title">
            <h2 class="panel-title" id="changes-title">{t(text::STILL_TO_DO)}</h2>
            <p class="changes__lead">{lead}</p>
            <ul class="changes__list">{rows}</ul>
            <p class="changes__ways">
                <CopyButton id="copy-patch" label=t(text::COPY_PATCH) primary=true content=move |()| Some(copied.clone()) />
                <a class="button" id="download-patch" data-testid="download-patch" download="headroom.patch"
                    href=words(move || browser::text_address(&linked))>{t(text::DOWNLOAD_PATCH)}</a>
            </p>
            <details class="changes__patch">
                <summary>{t(text::SHOW_PATCH)}</summary>
                <pre class="fixes__code" tabindex="0" data-testid="patch">{shown}</pre>
            </details>
        </section>
    }
}
