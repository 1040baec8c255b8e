//! The tables of a comparison: settings that differ, and memory by category and by phase.

use leptos::prelude::*;

use super::super::dynamic::{IntoPart, Part, part};
use crate::{
    state::{
        compare::{
            rows::{MemoryRow, SettingRow},
            view::ComparisonView,
        },
        format,
    },
    text::{self, Key, t},
};

/// The settings that differ.
#[component]
pub fn Settings(
    /// Both runs as they are shown.
    view: Memo<ComparisonView>,
) -> impl IntoView {
    view! {
        <section class="panel" aria-labelledby="compare-settings">
            <h2 class="panel-title" id="compare-settings">{t(text::COMPARE_SETTINGS)}</h2>
            {part(move || view.with(|view| settings(&view.settings)))}
        </section>
    }
}

/// The head of a table of both runs.
pub fn head(first: Key, has_difference: bool) -> Part {
    let difference = has_difference.then(|| view! { <th scope="col">{t(text::COMPARE_DIFFERENCE)}</th> });
    view! {
        <thead>
            <tr>
                <th scope="col">{t(first)}</th>
                <th scope="col">{t(text::COMPARE_PINNED)}</th>
                <th scope="col">{t(text::COMPARE_CHANGED)}</th>
                {difference}
            </tr>
        </thead>
    }
    .into_part()
}

fn settings(rows: &[SettingRow]) -> Part {
    if rows.is_empty() {
        return view! { <p class="compare__soft">{t(text::COMPARE_NOTHING)}</p> }.into_part();
    }
    let row = |SettingRow { name, is_key, values: [pinned, changed] }: SettingRow| {
        let id = name.clone();
        view! {
            <tr data-setting=id>
                <th scope="row" class:compare__key=is_key>{name}</th>
                <td>{pinned}</td>
                <td>{changed}</td>
            </tr>
        }
        .into_part()
    };
    let rows: Vec<Part> = rows.iter().cloned().map(row).collect();
    view! {
        <table class="compare__table compare__table--settings" data-testid="compare-settings">
            {head(text::COMPARE_SETTING, false)}
            <tbody>{rows}</tbody>
        </table>
    }
    .into_part()
}

/// Memory of both runs at the peak, and in each phase.
#[component]
pub fn MemoryTables(
    /// Both runs as they are shown.
    view: Memo<ComparisonView>,
) -> impl IntoView {
    view! {
        <section class="panel" aria-labelledby="compare-categories">
            <h2 class="panel-title" id="compare-categories">{t(text::COMPARE_CATEGORIES)}</h2>
            {part(move || view.with(|view| memory("categories", text::COMPARE_CATEGORY, &view.categories)))}
        </section>
        <section class="panel" aria-labelledby="compare-phases">
            <h2 class="panel-title" id="compare-phases">{t(text::COMPARE_BY_PHASE)}</h2>
            {part(move || view.with(|view| memory("phases", text::PHASE, &view.phases)))}
        </section>
    }
}

fn memory(id: &'static str, first: Key, rows: &[MemoryRow]) -> Part {
    if rows.is_empty() {
        return view! { <p class="compare__soft">{t(text::NO_PLAN)}</p> }.into_part();
    }
    let rows: Vec<Part> = rows.iter().map(memory_row).collect();
    view! {
        <table class="compare__table" data-testid=format!("compare-{id}")>
            {head(first, true)}
            <tbody>{rows}</tbody>
        </table>
    }
    .into_part()
}

/// A row of a table of memory: both runs and their difference.
pub fn memory_row(row: &MemoryRow) -> Part {
    let cells = row.bytes.map(|bytes| {
        let title = bytes.map(format::exact_bytes);
        let exact = bytes.map(|bytes| bytes.to_string());
        view! { <td title=title data-bytes=exact>{bytes.map_or_else(|| "–".to_owned(), format::size)}</td> }
    });
    let difference = row.difference();
    let sign = match difference.map_or(0, i64::signum) {
        1 => "more",
        -1 => "less",
        _ => "same",
    };
    view! {
        <tr>
            <th scope="row">{row.label.clone()}</th>
            {cells.collect_view()}
            <td data-sign=sign data-bytes=difference.map(|bytes| bytes.to_string())>
                {difference.map_or_else(|| "–".to_owned(), format::difference)}
            </td>
        </tr>
    }
    .into_part()
}
