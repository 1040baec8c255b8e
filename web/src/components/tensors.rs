//! The list of live tensors at the shown moment.

use leptos::prelude::*;

use super::dynamic::{act, flag, part, part_of, some_words, words};
use super::verdict::Mark;
use crate::{
    browser,
    state::{course::Drawable, format, shown::ShownPlan, tensors::Live},
    text::{self, say, t},
};

/// The panel of the live tensors.
#[component]
pub fn TensorList<R: Drawable>(
    /// The drawn plan.
    shown: ShownPlan<R>,
) -> impl IntoView {
    let stale = shown.is_stale;
    let moment = shown.moment;
    let title = move || {
        let title = moment.with(|moment| match moment {
            Some(moment) if !shown.follows() => say(&text::live_in(moment.phase.text_in())),
            Some(moment) if moment.fits => t(text::LIVE_AT_PEAK).to_owned(),
            Some(_) => t(text::LIVE_AT_FAILURE).to_owned(),
            None => t(text::LIVE).to_owned(),
        });
        format::marked_previous(title, stale.get() && moment.with(Option::is_some))
    };
    let total = move || moment.with(|moment| moment.as_ref().map(|moment| moment.live.total_bytes));
    let certainty = move || moment.with(|moment| moment.as_ref().map(|moment| moment.certainty));
    let mark = part_of(certainty, |certainty| certainty.map(|certainty| view! { <Mark certainty /> }));
    let back = move || {
        let fits = moment.with(|moment| moment.as_ref().is_none_or(|moment| moment.fits));
        shown.pinned.get().map(|_| {
            view! {
                <button type="button" class="button button--quiet" on:click=act(move || shown.pinned.set(None))>
                    {if fits { t(text::BACK_TO_PEAK) } else { t(text::BACK_TO_FAILURE) }}
                </button>
            }
        })
    };
    Effect::new(move |_| {
        // The list keeps its rows while a slider moves, so that each frame has time for the verdict and the chart.
        if !shown.is_sliding.get() {
            let table = |live: &Live| browser::show_tensors(&live.table());
            moment.with(|moment| moment.as_ref().map_or_else(|| table(&Live::default()), |moment| table(&moment.live)));
        }
    });
    view! {
        <section class="tensors" class:stale=flag(move || stale.get()) aria-labelledby="tensors-title">
            <h2 class="panel-title">
                <span id="tensors-title">{words(title)}</span>
                <span class="tensors__total" title=some_words(move || total().map(format::exact_bytes))>
                    {some_words(move || total().map(format::size))}{mark}
                </span>
                {part(back)}
            </h2>
            // web/tensors.js adds the list.
            <div class="tensors__body" id="tensors-body"></div>
        </section>
    }
}
