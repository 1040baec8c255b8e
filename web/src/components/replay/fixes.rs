//! What to change so that a recorded run fits.

use headroom_planner::plan::Fit;
use leptos::prelude::*;

use super::{
    super::dynamic::{IntoPart, Part, act, part},
    size::label,
};
use crate::{
    browser,
    components::actions::{CopyButton, command_words},
    state::{
        format,
        gpu::OnGpu as _,
        memo::memo,
        replay::{ReplayPage, expandable_saves},
    },
    text::{self, Key, say, t},
};

/// Changes to the program, each with the lines to change. The run has to be recorded again.
const CHANGES: [(&str, Key, &str); 4] = [
    ("batch", text::REPLAY_FIX_BATCH, ""),
    (
        "checkpoint",
        text::REPLAY_FIX_CHECKPOINT,
        "from torch.utils.checkpoint import checkpoint\nx = checkpoint(block, x, use_reentrant=False)",
    ),
    (
        "optimizer",
        text::REPLAY_FIX_OPTIMIZER,
        "import bitsandbytes as bnb\noptimizer = bnb.optim.AdamW8bit(model.parameters(), lr=lr)",
    ),
    (
        "budget",
        text::REPLAY_FIX_BUDGET,
        "import torch._functorch.config\ntorch._functorch.config.activation_memory_budget = 0.5",
    ),
];

/// The panel, for a run that does not fit.
#[component]
pub fn ReplayFixes(
    /// The page's state.
    page: ReplayPage,
) -> impl IntoView {
    let fails = page.answer.ask(|answer| answer.plan().is_some_and(|plan| !plan.fits));
    let expandable = memo(move || {
        let of_session = || page.session.with(|session| Some((session.file.clone()?, session.options.clone())));
        fails.get().then(of_session).flatten().and_then(|(file, options)| expandable_saves(&file, &options))
    });
    let largest = memo(move || {
        let (variable, ..) = page.size().filter(|_| fails.get())?;
        Some((label(variable), page.largest.get()?))
    });
    part(move || {
        fails.get().then(|| {
            let size = largest.get().map(|(label, size)| size_row(page, label, size));
            let expandable = expandable.get().map(|found| expandable_row(page, found));
            // A series has other batch sizes already.
            let is_listed = |id: &str| id != "batch" || page.size().is_none();
            let changes = CHANGES.into_iter().filter(|(id, ..)| is_listed(id));
            let changes = changes.map(|(id, what, lines)| change(id, what, lines));
            let rows: Vec<Part> = size.into_iter().chain(expandable).chain(changes).collect();
            view! {
                <section class="fixes" aria-labelledby="fixes-title">
                    <h2 class="panel-title" id="fixes-title">{t(text::REMEDIES)}</h2>
                    <ol class="fixes__list" data-testid="replay-fixes">{rows}</ol>
                </section>
            }
        })
    })
}

/// The largest size of the series that fits.
fn size_row(page: ReplayPage, label: &'static str, size: u64) -> Part {
    let apply = act(move || {
        page.choose_size(size);
        browser::show_answer();
    });
    view! {
        <li class="fixes__fix" data-fix="size">
            <code class="fixes__settings">{format!("{label} {size}")}</code>
            <button type="button" class="button button--primary" on:click=apply>{t(text::APPLY)}</button>
            <p class="fixes__facts">{t(text::REPLAY_LARGEST)}</p>
        </li>
    }
    .into_part()
}

/// Expandable segments, simulated on the recording.
fn expandable_row(page: ReplayPage, (fit, headroom_bytes): (Fit, i64)) -> Part {
    let size = format::size(headroom_bytes.unsigned_abs());
    let outcome = say(&if fit == Fit::Fails { text::fix_lacks(size) } else { text::fix_leaves(size) });
    let class = if fit == Fit::Fails { "button" } else { "button button--primary" };
    let apply = act(move || {
        page.edit_options(|options| options.expandable_segments = true);
        browser::show_answer();
    });
    view! {
        <li class="fixes__fix" data-fix="expandable">
            <code class="fixes__settings">{t(text::SWITCH_EXPANDABLE)}</code>
            <button type="button" class=class on:click=apply>{t(text::APPLY)}</button>
            <p class="fixes__facts">{outcome}</p>
        </li>
    }
    .into_part()
}

fn change(id: &'static str, what: Key, lines: &'static str) -> Part {
    let code = (!lines.is_empty()).then(|| {
        view! {
            <pre class="fixes__code" tabindex="0">{command_words(lines)}</pre>
            <CopyButton id=id label=t(text::COPY) content=move |()| Some(lines.to_owned()) />
        }
    });
    view! { <li class="replay__change" data-fix=id><p>{t(what)}</p> {code}</li> }.into_part()
}
