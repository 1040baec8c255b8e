//! The batch size or the sequence length of a recording at several sizes.

use headroom_planner::recording::Variable;
use leptos::prelude::*;

use super::super::{
    dynamic::{IntoPart, Part, part, words},
    field::Entry,
};
use crate::{
    state::{
        entry::{Fault, count},
        gpu::OnGpu as _,
        memo::memo,
        replay::ReplayPage,
    },
    text::{self, say, t},
};

/// The field, with the recorded sizes and the largest that fits. Nothing for a recording at one size.
#[component]
pub fn SizeField(
    /// The page's state.
    page: ReplayPage,
) -> impl IntoView {
    let variable = memo(move || page.size().map(|(variable, ..)| variable));
    part(move || variable.get().map(|variable| field(page, variable)))
}

/// Name of a variable.
pub fn label(variable: Variable) -> &'static str {
    t(match variable {
        Variable::BatchSize => text::REPLAY_BATCH_SIZE,
        Variable::SequenceLength => text::REPLAY_SEQUENCE_LENGTH,
    })
}

fn field(page: ReplayPage, variable: Variable) -> Part {
    let label = label(variable);
    let value = Signal::derive(move || page.size().map(|(_, _, size)| size.to_string()).unwrap_or_default());
    let recorded = memo(move || {
        let sizes = page.size().map(|(_, sizes, _)| sizes).unwrap_or_default();
        sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
    });
    let sizes = move || match page.largest.get() {
        Some(largest) => say(&text::replay_sizes(recorded.get(), largest)),
        None => say(&text::replay_sizes_none(recorded.get())),
    };
    let take = Callback::new(move |typed: String| -> Fault {
        match count(&typed, 1).and_then(|size| u64::try_from(size).ok()) {
            Some(size) => page.set_size(size),
            None => Some(text::A_WHOLE_NUMBER_FROM_1),
        }
    });
    view! {
        <div class="field">
            <label class="field__label" for=variable.key()>{label}</label>
            <Entry id=variable.key() label=label kind="number" min="1".to_owned() value faults=page.faults() take />
            <p class="replay__soft" data-testid="sizes">{words(sizes)}</p>
        </div>
    }
    .into_part()
}
