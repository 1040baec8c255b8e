//! The largest values that fit, if nothing else changes.

use std::time::Duration;

use headroom_planner::trainers::{TrainerRequest, largest_that_fits};
use leptos::prelude::*;

use super::super::dynamic::{IntoPart, Part, act, flag, part};
use crate::{
    state::trainer::{TrainerPage, key},
    text::{self, say, t},
};

/// Delay after an edit before the values are computed, so that the page stays responsive while a slider moves.
const DELAY: Duration = Duration::from_millis(200);

/// A number of the run: its option, the run's value, and the largest that fits.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Row {
    key: &'static str,
    given: u64,
    largest: Option<u64>,
}

/// The panel with the largest values that fit.
#[component]
pub fn LargestFits(
    /// The page's state.
    page: TrainerPage,
) -> impl IntoView {
    let rows = RwSignal::new(Vec::new());
    let is_computing = RwSignal::new(true);
    let pending = StoredValue::new(None::<TimeoutHandle>);
    Effect::new(move |_| {
        let request = page.request();
        is_computing.set(true);
        later(pending, DELAY, move || compute(request, Vec::new(), rows, is_computing, pending));
    });
    view! {
        <section class="fits" class:stale=flag(move || is_computing.get()) aria-labelledby="fits-title" data-testid="fits">
            <h2 class="panel-title" id="fits-title">{t(text::TRAINER_LARGEST)}</h2>
            <table class="fits__table">
                <tbody>{part(move || rows.with(|rows| rows.iter().map(|row| line(page, *row)).collect::<Vec<_>>()))}</tbody>
            </table>
        </section>
    }
}

/// Calls `work` after a delay. An earlier call that is still waiting is dropped.
fn later(pending: StoredValue<Option<TimeoutHandle>>, delay: Duration, work: impl FnOnce() + 'static) {
    if let Some(pending) = pending.get_value() {
        pending.clear();
    }
    pending.set_value(set_timeout_with_handle(work, delay).ok());
}

/// Computes the next row, and the others after a pause.
fn compute(
    request: Option<TrainerRequest>,
    mut found: Vec<Row>,
    rows: RwSignal<Vec<Row>>,
    is_computing: RwSignal<bool>,
    pending: StoredValue<Option<TimeoutHandle>>,
) {
    let next = request.as_ref().and_then(|request| Some((request, *request.run().knobs().get(found.len())?)));
    let Some((of, knob)) = next else {
        rows.set(found);
        is_computing.set(false);
        return;
    };
    found.push(Row { key: knob.key, given: knob.value, largest: largest_that_fits(of, knob) });
    later(pending, Duration::ZERO, move || compute(request, found, rows, is_computing, pending));
}

fn line(page: TrainerPage, row: Row) -> Part {
    let Row { key: name, given, largest } = row;
    let option = key(page.session.with_untracked(|session| session.trainer), name);
    let apply = option.zip(largest).filter(|(_, largest)| *largest != given).map(|(option, largest)| {
        let apply = act(move || page.commit(|session| session.set(option, &largest.to_string())));
        view! {
            <button type="button" class="button" aria-label=format!("{} --{name}={largest}", t(text::APPLY)) on:click=apply>
                {t(text::APPLY)}
            </button>
        }
    });
    let largest = largest.map_or_else(|| t(text::TRAINER_NONE_FITS).to_owned(), |largest| largest.to_string());
    view! {
        <tr data-key=name>
            <th scope="row"><code>{name}</code></th>
            <td><strong>{largest}</strong></td>
            <td>{say(&text::trainer_given(given.to_string()))}</td>
            <td>{apply}</td>
        </tr>
    }
    .into_part()
}
