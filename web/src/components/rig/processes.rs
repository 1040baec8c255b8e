//! The processes that use the GPUs.

use leptos::prelude::*;

use super::RigContext;
use crate::{
    components::dynamic::{IntoPart, part_of},
    state::rig::{
        processes::{Row, rows, why_none},
        values,
    },
    text::{self, say, t},
};

/// The table of processes.
#[component]
pub fn Processes(
    /// The page's state.
    desk: RigContext,
) -> impl IntoView {
    view! {
        <section class="panel" aria-labelledby="processes-title">
            <h2 class="panel-title" id="processes-title">{t(text::RIG_PROCESSES)}</h2>
            {part_of(move || desk.slow(|rig| (rows(rig), why_none(rig))), |(rows, why)| match rows.is_empty() {
                true => {
                    let none = why.map_or_else(
                        || t(text::RIG_NO_PROCESSES).to_owned(),
                        |why| say(&text::rig_processes_missing(values::why(why))),
                    );
                    view! { <p class="rig__hint" data-testid="no-processes">{none}</p> }.into_part()
                }
                false => table(rows).into_part(),
            })}
        </section>
    }
}

fn table(rows: Vec<Row>) -> impl IntoView {
    let has_gpus = rows.iter().any(|row| !row.gpu.is_empty());
    let rows: Vec<_> = rows
        .into_iter()
        .map(|row| {
            let run = row.run.map(|run| view! { <span class="processes__run">{run}</span> });
            let width = headroom_text::decimal::fixed(row.percent, 1);
            view! {
                <tr role="row" data-pid=row.pid.to_string()>
                    <td role="cell" class="processes__memory" class=("processes__memory--none", !row.is_known)>
                        {row.memory}
                        <svg class="processes__bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
                            <rect width=width height="4" />
                        </svg>
                    </td>
                    <th role="rowheader" scope="row"><code>{row.name}</code> " " {run}</th>
                    <td role="cell">{row.user}</td>
                    <td role="cell" data-name="PID">{row.pid.to_string()}</td>
                    {has_gpus.then(|| view! { <td role="cell">{row.gpu}</td> })}
                </tr>
            }
        })
        .collect();
    view! {
        <div class="rig__scroll" tabindex="0" role="group" aria-labelledby="processes-title">
            // CSS draws a list on phones; the explicit roles keep it a table for screen readers.
            <table class="processes" role="table" aria-labelledby="processes-title" data-testid="processes">
                <thead role="rowgroup"><tr role="row">
                    <th role="columnheader" scope="col">{t(text::RIG_MEMORY)}</th>
                    <th role="columnheader" scope="col">{t(text::RIG_PROCESS)}</th>
                    <th role="columnheader" scope="col">{t(text::RIG_USER)}</th>
                    <th role="columnheader" scope="col">"PID"</th>
                    {has_gpus.then(|| view! { <th role="columnheader" scope="col">{t(text::RIG_CARD)}</th> })}
                </tr></thead>
                <tbody role="rowgroup">{rows}</tbody>
            </table>
        </div>
    }
}
