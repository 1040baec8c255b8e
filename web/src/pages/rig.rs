//! The page of the machine with the GPUs: what its agent tells, drawn. Only here do socket, state and screen meet.

mod client;
mod history;

use leptos::prelude::*;

use crate::components::{
    dynamic::{flag, part_of},
    header::Header,
    rig::{
        access::Access,
        alerts::{Alerts, Fired},
        gpu::Gpus,
        log::Log,
        neighbours::Neighbours,
        orders::Orders,
        processes::Processes,
        run::RunPanel,
        status::{About, Status, Trouble},
        writes::WritesPanel,
    },
};

/// The page.
#[component]
pub fn RigPage() -> impl IntoView {
    let client = client::begin();
    let desk = client.desk;
    // What was shown stays, however old; before the first greeting there is nothing to show.
    let has_any = move || desk.connection.with(|connection| connection.was_live);
    // Without a card there is nobody to have processes or a history.
    let has_cards = move || desk.about(|rig| !rig.cards.is_empty());
    let is_old = move || {
        let now_ms = desk.now_ms.get();
        desk.connection.with(|connection| connection.is_old(now_ms))
    };
    view! {
        <Header page=3 leave=Callback::new(|()| {}) />
        <main class="rig">
            <Status desk />
            <Access desk />
            {part_of(has_any, move |has_any| has_any.then(|| view! {
                <div class="rig__body" class:rig__body--old=flag(is_old)>
                    <Fired desk />
                    <Trouble desk />
                    <Gpus desk />
                    <RunPanel desk />
                    <Orders desk />
                    <WritesPanel desk />
                    {part_of(has_cards, move |has_cards| has_cards.then(|| view! {
                        <Processes desk />
                        {history::chart(client)}
                    }))}
                    <div class="rig__two">
                        <Alerts desk />
                        <Log desk />
                    </div>
                    <About desk />
                </div>
            }))}
            <Neighbours />
        </main>
    }
}
