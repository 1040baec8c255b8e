//! The losses of the shown run and of the runs compared with it, and the differences between their configs.

use headroom_protocol::run::Run;
use leptos::prelude::*;

use super::RigContext;
use crate::{
    browser::rig::keep_focus,
    components::{
        dynamic::{IntoPart, Part, part_of},
        rig_charts::{LossChart, ZONE},
    },
    state::rig::{
        ShownRun,
        compare::{Differences, differences},
        names::listed,
        run::without_losses,
    },
    text::{self, say, t},
};

/// Renders the loss chart and the comparison.
pub fn losses(desk: RigContext, id: StoredValue<String>) -> Part {
    let losses = Signal::derive(move || {
        // Redrawn when the compared runs change.
        desk.compared.track();
        id.with_value(|id| {
            let found = |watched: &ShownRun| watched.losses.clone();
            desk.events(|rig| rig.runs.iter().find(|watched| watched.run.id == *id).map(found)).unwrap_or_default()
        })
    });
    let others = Signal::derive(move || {
        id.with_value(|id| desk.events(|rig| desk.compared.with(|compared| compared.others(rig, id, ZONE))))
    });
    // Distinguishes a run without losses from one whose losses are not loaded yet.
    let none = Signal::derive(move || {
        let is_whole = id.with_value(|id| {
            desk.events(|rig| rig.runs.iter().any(|watched| watched.run.id == *id && watched.is_whole))
        });
        match (is_whole, desk.losses_fault.get()) {
            (true, _) => t(text::LOSSES_NONE).to_owned(),
            (false, None) => t(text::LOSSES_LOADING).to_owned(),
            (false, Some(why)) => say(&text::losses_failed(why)),
        }
    });
    let forget = Callback::new(move |other: String| desk.compared.update(|compared| compared.remove(&other)));
    // An empty chart is shown only if losses may follow or other runs are compared.
    let without = move || {
        let of = |id: &String| {
            desk.events(|rig| rig.runs.iter().find(|watched| watched.run.id == *id).and_then(without_losses))
        };
        id.with_value(of).filter(|_| others.with(Vec::is_empty))
    };
    part_of(without, move |without| match without {
        Some(said) => view! { <p class="rig__hint" data-testid="no-losses">{t(said)}</p> }.into_part(),
        None => view! {
            <div class="run__chart">
                <LossChart losses others forget none />
                {choice(desk, id)}
                {table(desk, id)}
            </div>
        }
        .into_part(),
    })
    .into_part()
}

/// Renders the list of runs to compare with; empty if there are none or the limit is reached.
fn choice(desk: RigContext, id: StoredValue<String>) -> Part {
    let choices = move || {
        let compared = desk.compared.get();
        let is_new = |watched: &&ShownRun| {
            let Run { id: of, last, last_evaluation, .. } = &watched.run;
            // A run without losses cannot be compared.
            (last.is_some() || last_evaluation.is_some())
                && id.with_value(|id| id != of && compared.beside(id).all(|other| other != of))
        };
        desk.events(|rig| {
            let choice = |watched: &ShownRun| (watched.run.id.clone(), listed(rig, &watched.run, ZONE));
            match compared.has_room() {
                true => rig.runs.iter().filter(is_new).map(choice).collect::<Vec<_>>(),
                false => vec![],
            }
        })
    };
    part_of(choices, move |choices| {
        keep_focus("compare", "#losses");
        (!choices.is_empty()).then(|| {
            let options: Vec<_> =
                choices.into_iter().map(|(id, listed)| view! { <option value=id>{listed}</option> }).collect();
            view! {
                <select class="input run__compare" id="compare" aria-label=t(text::LOSSES_COMPARE)
                    on:change:target=move |event| desk.compared.update(|compared| compared.add(event.target().value()))>
                    <option value="">{t(text::LOSSES_COMPARE)}</option>
                    {options}
                </select>
            }
        })
    })
    .into_part()
}

/// Renders a table of the differences between the configs of the drawn runs.
fn table(desk: RigContext, id: StoredValue<String>) -> Part {
    let found = move || {
        let compared = desk.compared.get();
        let ids: Vec<String> = id.with_value(|id| std::iter::once(id).chain(compared.beside(id)).cloned().collect());
        let differ = (ids.len() > 1).then(|| desk.events(|rig| differences(rig, &ids, ZONE)));
        differ.flatten()
    };
    part_of(found, |found| {
        found.map(|Differences { names, rows }| {
            if rows.is_empty() {
                return view! { <p class="rig__hint">{t(text::LOSSES_COMPARE_SAME)}</p> }.into_part();
            }
            let head: Vec<_> = names.into_iter().map(|name| view! { <th scope="col">{name}</th> }).collect();
            let row = |(key, values): (String, Vec<String>)| {
                let values: Vec<_> = values.into_iter().map(|value| view! { <td>{value}</td> }).collect();
                view! { <tr><th scope="row">{key}</th>{values}</tr> }
            };
            view! {
                <div class="rig-chart__scroll" tabindex="0" role="group" aria-label=t(text::LOSSES_COMPARE_TABLE)>
                    <table class="rig-chart__table" data-testid="differences">
                        <thead><tr><th scope="col">{t(text::RIG_CONFIG)}</th>{head}</tr></thead>
                        <tbody>{rows.into_iter().map(row).collect_view()}</tbody>
                    </table>
                </div>
            }
            .into_part()
        })
    })
    .into_part()
}
