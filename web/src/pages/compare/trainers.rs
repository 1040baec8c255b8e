//! Two runs of nanochat or Hugging Face.

use headroom_planner::link::{split_compared, trainer::decode, with_compared};
use leptos::prelude::*;

use super::{
    super::trainer_address::{self, Entry},
    layout,
};
use crate::{
    browser,
    components::{
        dynamic::{IntoPart, Part},
        gpu_picker::GpuPicker,
        trainers::{form::TrainerForm, model::ModelInput},
    },
    state::{
        compare::Comparison,
        gpu,
        trainer::{TrainerPage, TrainerSession},
    },
};

/// The pages that open the changed run, with their positions in the header.
const PAGES_OF_RUN: [(u32, &str); 2] = [(0, "trainers.html"), (2, "gpus.html")];

/// Separator of the texts of both runs in the state of a history entry.
const SEPARATOR: char = '\u{1}';

/// Renders the page.
pub fn page() -> Part {
    let page = TrainerPage::new();
    page.edit(|session| gpu::prefer(&mut session.options, browser::kept_gpu().as_deref()));
    let comparison = Comparison::new(page);
    open(comparison);
    trainer_address::keep(page, move || entry(comparison), move || open(comparison));
    Effect::new(move |_| {
        let fragment = page.session.with(TrainerSession::fragment);
        for (position, name) in PAGES_OF_RUN {
            browser::link_page(position, &browser::page_with(name, &fragment));
        }
    });
    Effect::new(move |_| {
        let part = comparison.pinned_link.with(|link| with_compared(String::new(), link));
        browser::pinned::keep(&part, "");
    });
    let leave = Callback::new(move |()| trainer_address::write(page, &untrack(|| entry(comparison))));
    let form = view! {
        <GpuPicker page chosen=|name: String| browser::keep_gpu(&name) />
        <ModelInput page />
        <TrainerForm page />
    };
    layout(comparison, page.notice, leave, form.into_part())
}

/// Opens both runs of the address, with the texts of its history entry. Without a pinned run, the changed one is pinned.
fn open(comparison: Comparison<TrainerPage>) {
    let fragment = browser::fragment();
    let Some(link) = decode(&fragment) else { return };
    let texts = trainer_address::kept_texts(comparison.changed);
    let (changed, pinned) = texts.as_deref().and_then(|texts| texts.split_once(SEPARATOR)).unzip();
    comparison.changed.open(link, changed);
    let mut session = comparison.changed.session.get_untracked();
    if let Some(link) = split_compared(&fragment).1.and_then(|compared| decode(&compared)) {
        session.open(link, pinned);
    }
    comparison.set_pinned(session);
}

/// Both runs, tracked.
fn entry(comparison: Comparison<TrainerPage>) -> Entry {
    let sessions = [comparison.changed.session, comparison.pinned];
    let [mut texts, pinned] = sessions.map(|session| session.with(TrainerSession::state));
    texts.push(SEPARATOR);
    texts.push_str(&pinned);
    Entry { fragment: comparison.fragment(), texts }
}
