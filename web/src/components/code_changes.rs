//! What the plan assumes besides the config: changes to nanoGPT's code and an environment variable, each with a button
//! that undoes it.

use headroom_planner::advice::{changes_text, patch_of};
use leptos::prelude::*;

use super::{
    actions::CopyButton,
    dynamic::{IntoPart, Part, act, part_of, words},
};
use crate::{
    browser,
    state::{
        budget::Budget,
        needs::{self, Needs},
        session::Session,
    },
    text::{self, say, t},
};

/// The panel of what remains to be done; empty if nanoGPT runs the plan as it is.
#[component]
pub fn CodeChanges(
    /// The calculator's state.
    budget: Budget,
) -> impl IntoView {
    let needed = budget.ask(|answer| answer.plan().map(Needs::of_plan).unwrap_or_default());
    part_of(move || needed.get(), move |needed| (!needed.is_empty()).then(|| panel(budget, needed)))
}

fn panel(budget: Budget, needed: Needs) -> impl IntoView {
    let Needs { changes, variable, vocab_size } = needed;
    let patch = patch_of(&changes);
    // One list type for every part keeps the page small.
    let mut leads: Vec<Part> = Vec::new();
    let mut ways: Vec<Part> = Vec::new();
    let mut details: Vec<Part> = Vec::new();
    let mut lead = |lead: String| leads.push(view! { <p class="changes__lead">{lead}</p> }.into_part());
    if !changes.is_empty() {
        lead(say(&text::still_to_do_lead(changes_text(&changes))));
        let (copied, linked) = (patch.clone(), patch.clone());
        let copy = view! { <CopyButton id="copy-patch" label=t(text::COPY_PATCH) primary=true content=move |()| Some(copied.clone()) /> };
        let download = view! {
            <a class="button" id="download-patch" data-testid="download-patch" download="headroom.patch"
                href=words(move || browser::text_address(&linked))>{t(text::DOWNLOAD_PATCH)}</a>
        };
        ways.extend([copy.into_part(), download.into_part()]);
        let shown = view! {
            <details class="changes__patch">
                <summary>{t(text::SHOW_PATCH)}</summary>
                <pre class="fixes__code" tabindex="0" data-testid="patch">{patch}</pre>
            </details>
        };
        details.push(shown.into_part());
    }
    let mut rows: Vec<Part> = changes
        .into_iter()
        .map(|change| {
            let undo: Undo = Box::new(move |session| needs::undo(session, change));
            row(budget, change.file().to_owned(), t(change.text()), undo)
        })
        .collect();
    if let Some(variable) = variable {
        lead(t(text::STILL_TO_SET_LEAD).to_owned());
        let copied = format!("export {variable}\n");
        let copy = view! { <CopyButton id="copy-variable" label=t(text::COPY_VARIABLE) primary=ways.is_empty() content=move |()| Some(copied.clone()) /> };
        ways.push(copy.into_part());
        let undo: Undo = Box::new(|session| session.set_options(|options| options.expandable_segments = false));
        rows.push(row(budget, variable, t(text::EXPANDABLE), undo));
    }
    if let Some(size) = vocab_size {
        lead(say(&text::vocabulary_to_do(size)));
        rows.push(row(budget, "vocab_size".to_owned(), text::doc("vocab_size"), Box::new(needs::undo_vocabulary)));
    }
    view! {
        <section class="changes" data-testid="code-changes" aria-labelledby="changes-title">
            <h2 class="panel-title" id="changes-title">{t(text::STILL_TO_DO)}</h2>
            {leads}
            <ul class="changes__list">{rows}</ul>
            <p class="changes__ways">{ways}</p>
            {details}
        </section>
    }
}

type Undo = Box<dyn Fn(&mut Session) + Send + Sync>;

/// A need with the button that undoes it.
fn row(budget: Budget, place: String, what: &'static str, undo: Undo) -> Part {
    let label = say(&text::undo_change(what));
    let undo = act(move || {
        budget.shown.pinned.set(None);
        budget.commit(|session| undo(session));
        browser::show_answer();
    });
    let name = place.clone();
    view! {
        <li class="changes__change" data-change=name>
            <code>{place}</code> <span>{what}</span>
            <button type="button" class="button" aria-label=label on:click=undo>{t(text::UNDO)}</button>
        </li>
    }
    .into_part()
}
