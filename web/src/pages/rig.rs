//! The rig page, which shows the agent's data. Only this module connects the socket, the state and the view.

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

/// The rig page.
#[component]
pub fn RigPage() -> impl IntoView {
    let client = client::begin();
    history::keep_history(client);
    let desk = client.desk;
    // Old data stay visible. Before the first greeting there are no data.
    let has_any = move || desk.connection.with(|connection| connection.was_live);
    // Without a GPU there are no processes and no history.
    let has_gpus = move || desk.about(|rig| !rig.gpus.is_empty());
    let is_old = move || {
        let now_ms = desk.now_ms.get();
        desk.connection.with(|connection| connection.is_old(now_ms))
    };
    view! {
        <Header page=5 leave=Callback::new(|()| {}) />
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
                    {part_of(has_gpus, move |has_gpus| has_gpus.then(|| view! {
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
