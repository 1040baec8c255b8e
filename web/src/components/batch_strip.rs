//! The micro-batch sizes of a run on its GPU, as buttons.

use leptos::prelude::*;

use super::dynamic::{IntoPart, Part, act};
use crate::{
    state::{
        batch_strip::{BatchCell, BatchStrip},
        format,
        gpu_table::{time, words},
    },
    text::{self, say, t},
};

/// Renders the sizes. A press calls `set` with its size.
pub fn batch_strip(strip: &BatchStrip, set: Callback<u64>) -> Part {
    let advice =
        strip.recommended.map_or_else(|| t(text::GPUS_BATCH_NONE).to_owned(), |n| say(&text::gpus_batch_best(n)));
    let cells: Vec<Part> = strip.cells.iter().map(|cell| button(strip, cell, set)).collect();
    view! {
        <h2 class="gpus__headline">{say(&text::gpus_batches(&*strip.gpu))}</h2>
        <p data-testid="batch-advice">{advice}</p>
        <p class="gpus__soft">{t(text::GPUS_BATCHES_HINT)}</p>
        <ul class="strip" data-testid="batches">{cells}</ul>
    }
    .into_part()
}

fn button(strip: &BatchStrip, cell: &BatchCell, set: Callback<u64>) -> Part {
    let BatchCell { size, summary } = *cell;
    let [low, high] = summary.band_bytes.map(format::signed_size);
    let per_token = summary.seconds_per_token.map(|seconds| say(&text::gpus_per_token(time(seconds))));
    view! {
        <li>
            <button type="button" class="strip__size" class:strip__size_best=strip.recommended == Some(size)
                data-batch=size.to_string() data-outcome=summary.fit.name() aria-pressed=(strip.own == size).to_string()
                title=say(&text::gpus_left_band(low, high)) on:click=act(move || set.run(size))>
                <span class="strip__number">{format::grouped(size)}</span>
                <span class="strip__result">{say(&words(&summary))}</span>
                <span class="gpus__clouds">{per_token}</span>
            </button>
        </li>
    }
    .into_part()
}
