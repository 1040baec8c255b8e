//! The list of GPUs with the outcome of a run on each.

use headroom_planner::{
    hardware::Device,
    session::Options,
    survey::{GpuRow, has_times},
};
use leptos::prelude::*;

use super::dynamic::{IntoPart, Part, act};
use crate::{
    browser,
    state::{
        format,
        gpu_table::{energy as energy_words, time, words as result_words},
        listed_run::ListedRun,
    },
    text::{self, say, t},
};

/// Number of rows before the button that shows the others.
const FIRST_ROWS: usize = 24;

/// A run on the GPU of its options.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// The run.
    pub run: ListedRun,
    /// Its GPU and environment.
    pub options: Options,
}

/// Renders the rows that the filters show. `has_rows` is whether there are any without filters. Unless `shows_all`, the
/// first rows and the `current` GPU are shown, with a button for the others. `leave` is called with the fragment of a link
/// before it opens.
pub fn gpu_list(
    listed: &Listed,
    current: Option<&Device>,
    found: &[GpuRow],
    has_rows: bool,
    shows_all: RwSignal<bool>,
    leave: Callback<String>,
) -> Part {
    if found.is_empty() {
        let nothing = if has_rows { t(text::GPUS_NOTHING) } else { "" };
        return view! { <p class="gpus__soft" data-testid="gpus-nothing">{nothing}</p> }.into_part();
    }
    let n_first = if shows_all.get() { found.len() } else { FIRST_ROWS };
    let has_times = has_times(found);
    let rows = found.iter().enumerate().filter_map(|(index, row)| {
        let is_current = current == Some(row.device);
        (index < n_first || is_current).then(|| row_of(listed, index, row, is_current, has_times, leave))
    });
    let rows: Vec<Part> = rows.collect();
    // The button disappears, so the focus moves to the first row that it shows.
    let show = move |_| {
        shows_all.set(true);
        request_animation_frame(|| browser::focus(&row_id(FIRST_ROWS)));
    };
    let show_all = (rows.len() < found.len()).then(|| {
        view! {
            <button type="button" class="button gpus__all" id="gpus-all" on:click=show>
                {say(&text::gpus_show_all(found.len()))}
            </button>
        }
    });
    let time_headings = has_times.then(|| {
        view! {
            <th scope="col" class="gpus__number gpus__time" title=t(text::GPUS_TIME_HINT)>{t(text::GPUS_TIME)}</th>
            <th scope="col" class="gpus__number gpus__energy">{t(text::GPUS_ENERGY)}</th>
        }
    });
    let energy_note = has_times.then(|| {
        view! { <p class="gpus__soft gpus__energy" data-testid="gpus-energy">{t(text::GPUS_ENERGY_HINT)}</p> }
    });
    view! {
        <table class="gpus__table" data-testid="gpus">
            <thead>
                <tr>
                    <th scope="col">{t(text::GPU)}</th>
                    <th scope="col" class="gpus__number">{t(text::GPUS_MEMORY)}</th>
                    <th scope="col">{t(text::GPUS_RESULT)}</th>
                    {time_headings}
                </tr>
            </thead>
            <tbody>{rows}</tbody>
        </table>
        {energy_note}
        <p class="gpus__soft">{t(text::GPUS_PRICES)}</p>
        {show_all}
    }
    .into_part()
}

/// The id of a row's link.
fn row_id(index: usize) -> String {
    format!("row-{index}")
}

/// Renders one GPU. Its name links to the calculator with the run on it.
fn row_of(
    listed: &Listed,
    index: usize,
    row: &GpuRow,
    is_current: bool,
    has_times: bool,
    leave: Callback<String>,
) -> Part {
    let (page, fragment) = listed.run.calculator(&listed.options.with_device(row.device));
    let href = browser::page_with(page, &fragment);
    let Some(summary) = row.summary else { return ().into_part() };
    let [low, high] = summary.band_bytes.map(format::signed_size);
    let clouds = (!row.clouds.is_empty()).then(|| view! { <span class="gpus__clouds">{row.clouds.join(", ")}</span> });
    let name = &*row.device.name;
    let times = has_times.then(|| {
        view! {
            <td class="gpus__number gpus__time">{summary.iteration_seconds.map(|seconds| format!("≈ {}", time(seconds)))}</td>
            <td class="gpus__number gpus__energy">{summary.max_iteration_watt_hours.map(|energy| format!("≤ {}", energy_words(energy)))}</td>
        }
    });
    view! {
        <tr data-gpu=name data-outcome=summary.fit.name() aria-current=is_current.then_some("true")>
            <th scope="row"><a id=row_id(index) href=href on:click=act(move || leave.run(fragment.clone()))>{name}</a>{clouds}</th>
            <td class="gpus__number" title=format::exact_bytes(row.device.total_bytes)>{format!("{} GB", row.device.vram_bytes_nominal >> 30)}</td>
            <td class="gpus__result" title=say(&text::gpus_left_band(low, high))>{say(&result_words(&summary))}</td>
            {times}
        </tr>
    }
    .into_part()
}
