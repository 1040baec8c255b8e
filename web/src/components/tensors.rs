//! The list of live tensors at the shown moment.

use leptos::prelude::*;

use super::dynamic::{act, flag, part, part_between};
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
    let head = move || {
        let total = moment.with(|moment| moment.as_ref().map(|moment| (moment.live.total_bytes, moment.certainty)));
        let total = total.map(|(bytes, certainty)| {
            view! {
                <span class="tensors__total" title=format::exact_bytes(bytes)>{format::size(bytes)}<Mark certainty /></span>
            }
        });
        view! { <span id="tensors-title">{title()}</span> {total} }
    };
    let back = move || {
        shown.pinned.get().map(|_| {
            let fits = moment.with(|moment| moment.as_ref().is_none_or(|moment| moment.fits));
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
                {part_between(shown.is_sliding, head)}
                {part(back)}
            </h2>
            // web/tensors.js adds the list.
            <div class="tensors__body" id="tensors-body"></div>
        </section>
    }
}
