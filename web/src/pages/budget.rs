//! The calculator page: the run and the GPU on the left, the result on the right.

use leptos::prelude::*;

use super::address;
use crate::{
    browser,
    components::{
        builtin::BuiltinView, chart::ChartView, code_changes::CodeChanges, config::ConfigInput, fixes::Fixes,
        form::RunForm, gpu_picker::GpuPicker, header::Header, message::Message, more::More, notice::Notice,
        phases::PhaseTable, problems::Problems, summary::RunSummary, tensors::TensorList, trainer_links::TrainerLinks,
        verdict::VerdictView,
    },
    state::budget::Budget,
    text::{self, t},
};

/// The calculator page.
#[component]
pub fn BudgetPage() -> impl IntoView {
    let budget = Budget::new();
    address::open(budget);
    address::keep(budget);
    let message = budget.ask(|answer| Some(answer.plan()?.oom.as_ref()?.message.clone()));
    let leave = Callback::new(move |()| address::write(budget));
    view! {
        <Header leave />
        <Notice notice=budget.notice />
        <main class="budget">
            <TrainerLinks />
            <RunSummary budget />
            <section class="budget__run" id="run" tabindex="-1" aria-label=t(text::YOUR_RUN)>
                <GpuPicker page=budget chosen=|name: String| browser::keep_gpu(&name) />
                <ConfigInput budget />
                <Problems budget />
                <RunForm budget />
                <More budget />
            </section>
            <section class="budget__answer" id="answer" tabindex="-1" aria-label=t(text::RESULT)>
                <VerdictView budget />
                <CodeChanges budget />
                <div class="budget__course">
                    <ChartView shown=budget.shown />
                    <BuiltinView budget />
                    <TensorList shown=budget.shown />
                    // Last, so that the layout above does not shift when it appears or disappears.
                    <Message message />
                </div>
                <div class="budget__side">
                    <Fixes budget />
                    <PhaseTable shown=budget.shown />
                </div>
            </section>
        </main>
    }
}
