//! A GPU's history as a table, as an accessible alternative to the drawing.

use leptos::prelude::*;
use wasm_bindgen::JsCast;
use web_sys::{Element, Event};

use super::context::{ChartContext, ZONE};
use crate::{
    components::dynamic::part_of,
    text::{self, t},
};

/// The table, built only while it is open.
#[component]
pub fn HistoryTable(shown: ChartContext) -> impl IntoView {
    let open = RwSignal::new(false);
    let toggled = move |event: Event| {
        let details = event.current_target().and_then(|target| target.dyn_into::<Element>().ok());
        open.set(details.is_some_and(|details| details.has_attribute("open")));
    };
    let table = move || {
        let made = |_| shown.with(|charted, gpus, newest_ms| (charted.chart, charted.table(gpus, newest_ms, ZONE)));
        open.get().then_some(()).map(made)
    };
    view! {
        <details class="rig-chart__details" on:toggle=toggled>
            <summary>{t(text::HISTORY_TABLE)}</summary>
            {part_of(table, |table| table.map(|(chart, rows)| view! {
                <div class="rig-chart__scroll" role="group" tabindex="0" aria-labelledby="history-title">
                    <table class="rig-chart__table">
                        <thead>
                            <tr>
                                <th scope="col">{t(text::HISTORY_TIME)}</th>
                                {chart.named_metrics().map(|(_, name)| view! {
                                    <th scope="col">{t(name)}</th>
                                }).collect_view()}
                            </tr>
                        </thead>
                        <tbody>
                            {rows.into_iter().map(|(when, values)| view! {
                                <tr>
                                    <th scope="row">{when}</th>
                                    {values.into_iter().map(|value| view! { <td>{value}</td> }).collect_view()}
                                </tr>
                            }).collect_view()}
                        </tbody>
                    </table>
                </div>
            }))}
        </details>
    }
}
