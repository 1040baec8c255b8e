//! The recording on every GPU of the table.

use std::time::Duration;

use headroom_planner::{plan::Fit, session::Options};
use leptos::prelude::*;

use super::super::dynamic::{IntoPart, Part, act, flag, part, words};
use crate::{
    browser,
    state::{
        format, gpu,
        gpu::OnGpu as _,
        replay::{GpuResult, OpenRecording, ReplayPage, gpus, smallest},
    },
    text::{self, say, t},
};

/// Number of GPUs that are replayed without a pause.
const SLICE: usize = 4;
/// Delay before the first, so that the chart is painted first.
const DELAY: Duration = Duration::from_millis(150);
/// Number of rows before the button that shows the others.
const FIRST_ROWS: usize = 10;

/// The panel with the smallest GPU and a row for each GPU.
#[component]
pub fn OtherGpus(
    /// The page's state.
    page: ReplayPage,
) -> impl IntoView {
    let results = RwSignal::new(Vec::<GpuResult>::new());
    let (is_planning, shows_all) = (RwSignal::new(true), RwSignal::new(false));
    keep(page, results, is_planning);
    let lead = move || match results.with(|results| {
        smallest(results).map(|result| (&*result.device.name, format::signed_size(result.headroom_bytes)))
    }) {
        _ if is_planning.get() => t(text::GPUS_PLANNING).to_owned(),
        Some((name, left)) => say(&text::gpus_smallest(name, left)),
        None => t(text::GPUS_NONE).to_owned(),
    };
    let rows = move || {
        let n = if shows_all.get() { usize::MAX } else { FIRST_ROWS };
        results.with(|results| results.iter().take(n).map(|result| row(page, *result)).collect::<Vec<Part>>())
    };
    let more = move || {
        let n = results.with(Vec::len);
        (n > FIRST_ROWS && !shows_all.get()).then(|| {
            view! {
                <button type="button" class="button replay__all" on:click=act(move || shows_all.set(true))>
                    {say(&text::gpus_show_all(n))}
                </button>
            }
        })
    };
    view! {
        <section class="fits" class:stale=flag(move || is_planning.get()) aria-labelledby="gpus-title" data-testid="other-gpus">
            <h2 class="panel-title" id="gpus-title">{t(text::PAGE_GPUS)}</h2>
            <p class="fixes__lead" data-testid="smallest">{words(lead)}</p>
            <table class="fits__table"><tbody>{part(rows)}</tbody></table>
            {part(more)}
        </section>
    }
}

/// A GPU with the outcome. Its button selects it.
fn row(page: ReplayPage, result: GpuResult) -> Part {
    let GpuResult { device, fit, headroom_bytes } = result;
    let words = match fit {
        Fit::Fits => text::fits(format::signed_size(headroom_bytes)),
        Fit::Narrow => text::fits_narrowly(format::signed_size(headroom_bytes)),
        Fit::Fails => text::does_not_fit(format::size(headroom_bytes.unsigned_abs())),
    };
    let name = &*device.name;
    let choose = act(move || {
        page.commit_options(|options| gpu::set(options, name));
        browser::keep_gpu(name);
        browser::show_answer();
    });
    view! {
        <tr data-gpu=name data-outcome=fit.name()>
            <th scope="row"><button type="button" class="button button--quiet" on:click=choose>{name}</button></th>
            <td class="replay__result">{say(&words)}</td>
        </tr>
    }
    .into_part()
}

/// Replays the recording on all GPUs after each change, in slices.
fn keep(page: ReplayPage, results: RwSignal<Vec<GpuResult>>, is_planning: RwSignal<bool>) {
    let pending = StoredValue::new(None::<TimeoutHandle>);
    let last = StoredValue::new(None::<(OpenRecording, Options)>);
    Effect::new(move |_| {
        let Some((file, options)) = page.session.with(|session| Some((session.file.clone()?, session.options.clone())))
        else {
            return;
        };
        // The table is the same on another GPU.
        let of = (file.clone(), Options { gpu: String::new(), vram_bytes: None, ..options.clone() });
        if last.with_value(|last| last.as_ref() == Some(&of)) {
            return;
        }
        last.set_value(Some(of));
        if let Some(pending) = pending.get_value() {
            pending.clear();
        }
        is_planning.set(true);
        later(pending, move || slice(file, options, Vec::new(), results, is_planning, pending), DELAY);
    });
    on_cleanup(move || {
        if let Some(Some(pending)) = pending.try_get_value() {
            pending.clear();
        }
    });
}

type Pending = StoredValue<Option<TimeoutHandle>>;

fn later(pending: Pending, work: impl FnOnce() + 'static, delay: Duration) {
    pending.set_value(set_timeout_with_handle(work, delay).ok());
}

fn slice(
    file: OpenRecording,
    options: Options,
    mut found: Vec<GpuResult>,
    results: RwSignal<Vec<GpuResult>>,
    is_planning: RwSignal<bool>,
    pending: Pending,
) {
    let more = gpus(&file, &options, found.len(), SLICE);
    let is_last = more.len() < SLICE;
    found.extend(more);
    if is_last {
        results.set(found);
        is_planning.set(false);
    } else {
        later(pending, move || slice(file, options, found, results, is_planning, pending), Duration::ZERO);
    }
}
