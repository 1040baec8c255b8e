//! Less common options: the optimizer, common patches, and the environment of the run.

use headroom_planner::{
    nanogpt::Value,
    optimizer_spec::Optimizer,
    session::Options,
    train_config::{Attention, CrossEntropy},
};
use headroom_text::units::MIB;
use leptos::prelude::*;

use super::dynamic::part;
use super::field::{Choice, TextField, Toggle};
use crate::{
    state::{answer::PlannedSession, budget::Budget, entry, format, memo::memo},
    text::{self, t},
};

const ATTENTIONS: [Attention; 2] = [Attention::Flash, Attention::Math];
const CROSS_ENTROPIES: [CrossEntropy; 3] = [CrossEntropy::Whole, CrossEntropy::Chunked, CrossEntropy::Fused];

/// The disclosure with the less common options.
#[component]
pub fn More(
    /// The calculator's state.
    budget: Budget,
) -> impl IntoView {
    let changed = memo(move || budget.session.with(|session| n_changed(&session.options)));
    view! {
        <details class="more" id="more">
            <summary class="more__summary">
                {t(text::MORE)}
                {part(move || (changed.get() > 0).then(|| view! { <span class="more__count">{changed.get().to_string()}</span> }))}
            </summary>
            <div class="more__fields">
                <Training budget />
                <Patches budget />
                <Surroundings budget />
            </div>
        </details>
    }
}

/// Counts the options of the disclosure that differ from their defaults.
fn n_changed(options: &Options) -> usize {
    let default = Options::default();
    [
        options.attention != default.attention,
        options.optimizer != default.optimizer,
        options.cross_entropy != default.cross_entropy,
        options.activation_checkpointing,
        options.del_eval_logits,
        options.del_train_logits,
        options.expandable_segments,
        options.world_size != default.world_size,
        options.torch != default.torch,
        options.context_bytes.is_some(),
    ]
    .into_iter()
    .filter(|changed| *changed)
    .count()
}

fn option<T: PartialEq + Send + Sync + 'static>(
    budget: Budget,
    read: impl Fn(&Options) -> T + Send + Sync + 'static,
) -> Memo<T> {
    // Boxed, so that the framework's code is instantiated once per type.
    let read: Box<dyn Fn(&Options) -> T + Send + Sync> = Box::new(read);
    memo(move || budget.session.with(|session| read(&session.options)))
}

fn change(budget: Budget, write: impl FnOnce(&mut Options)) {
    budget.edit(|session| session.set_options(write));
}

fn position<T: PartialEq>(all: &[T], one: &T) -> Option<usize> {
    all.iter().position(|other| other == one)
}

/// Options that nanoGPT's keys and PyTorch offer.
#[component]
fn Training(budget: Budget) -> impl IntoView {
    let optimizers: Vec<_> = Optimizer::ALL.iter().map(|optimizer| t(optimizer.spec().label)).collect();
    view! {
        <Choice id="attention" label=t(text::ATTENTION) hint=t(text::ATTENTION_HINT) choices=vec!["flash", "math"]
            chosen=option(budget, |o| position(&ATTENTIONS, &o.attention))
            on_choose=move |index: usize| change(budget, |o| o.attention = ATTENTIONS[index]) />
        <Choice id="optimizer" label=t(text::OPTIMIZER) hint=t(text::OPTIMIZER_HINT)
            choices=optimizers
            chosen=option(budget, |o| Some(o.optimizer as usize))
            on_choose=move |index: usize| change(budget, |o| o.optimizer = Optimizer::ALL[index]) />
        <Choice id="cross_entropy" label=t(text::CROSS_ENTROPY) hint=t(text::CROSS_ENTROPY_HINT)
            choices=[text::CROSS_ENTROPY_WHOLE, text::CROSS_ENTROPY_CHUNKED, text::CROSS_ENTROPY_FUSED].map(t).to_vec()
            chosen=option(budget, |o| position(&CROSS_ENTROPIES, &o.cross_entropy))
            on_choose=move |index: usize| change(budget, |o| o.cross_entropy = CROSS_ENTROPIES[index]) />
        <CountKey budget key="eval_iters" />
        <CountKey budget key="eval_interval" />
    }
}

/// Common patches of nanoGPT.
#[component]
fn Patches(budget: Budget) -> impl IntoView {
    view! {
        <CountKey budget key="eval_batch_size" />
        <Toggle id="activation_checkpointing" label=t(text::CHECKPOINTING) hint=t(text::CHECKPOINTING_HINT)
            on=option(budget, |o| o.activation_checkpointing)
            on_change=move |on| change(budget, |o| o.activation_checkpointing = on) />
        <Toggle id="del_eval_logits" label=t(text::DEL_EVAL_LOGITS) hint=t(text::DEL_EVAL_LOGITS_HINT)
            on=option(budget, |o| o.del_eval_logits)
            on_change=move |on| change(budget, |o| o.del_eval_logits = on) />
        <Toggle id="del_train_logits" label=t(text::DEL_TRAIN_LOGITS) hint=t(text::DEL_TRAIN_LOGITS_HINT)
            on=option(budget, |o| o.del_train_logits)
            on_change=move |on| change(budget, |o| o.del_train_logits = on) />
    }
}

/// Options of the environment: allocator settings, number of processes, PyTorch version and CUDA context.
#[component]
fn Surroundings(budget: Budget) -> impl IntoView {
    let context = option(budget, |o| o.context_bytes.map(|bytes| (bytes / MIB).to_string()).unwrap_or_default());
    let estimate = budget.ask(|answer| match answer.plan() {
        Some(plan) => {
            format!("{} {}", format::mark(plan.basis.context), format::size(plan.request.machine.context.bytes))
        }
        None => String::new(),
    });
    view! {
        <Toggle id="expandable_segments" label=t(text::EXPANDABLE) hint=t(text::EXPANDABLE_HINT)
            on=option(budget, |o| o.expandable_segments)
            on_change=move |on| change(budget, |o| o.expandable_segments = on) />
        <TextField id="world_size" faults=budget.faults label=t(text::PROCESSES) hint=t(text::PROCESSES_HINT)
            value=option(budget, |o| o.world_size.to_string())
            take=move |typed: String| {
                let Some(n) = entry::count(&typed, 1) else { return Some(text::A_WHOLE_NUMBER_FROM_1) };
                change(budget, |o| o.world_size = n.unsigned_abs());
                None
            } />
        <TextField id="torch" faults=budget.faults label=t(text::TORCH) hint=t(text::TORCH_HINT) value=option(budget, |o| o.torch.clone())
            take=move |typed: String| {
                let Some(torch) = entry::torch(&typed) else { return Some(text::A_VERSION) };
                change(budget, |o| o.torch = torch);
                None
            } />
        <TextField id="context" faults=budget.faults label=t(text::CONTEXT) hint=t(text::CONTEXT_HINT) value=context placeholder=estimate
            take=move |typed: String| {
                let bytes = entry::size(&typed, "MiB");
                if bytes.is_none() && !typed.trim().is_empty() {
                    return Some(text::A_SIZE_IN_MIB);
                }
                change(budget, |o| o.context_bytes = bytes);
                None
            } />
    }
}

/// A number field for a key of the config.
#[component]
fn CountKey(budget: Budget, key: &'static str) -> impl IntoView {
    let hint = text::doc(key);
    let value = budget.ask(move |answer: &PlannedSession| answer.number_text(key));
    let placeholder = budget.ask(move |answer: &PlannedSession| match key {
        "eval_batch_size" => answer.number_text("batch_size"),
        _ => String::new(),
    });
    // train.py divides by the interval, so its minimum is 1. Zero evaluation batches means no evaluation.
    let (min, expected) =
        if key == "eval_iters" { (0, text::A_WHOLE_NUMBER) } else { (1, text::A_WHOLE_NUMBER_FROM_1) };
    view! {
        <TextField id=key faults=budget.faults label=key hint value placeholder
            take=move |typed: String| {
                let Some(n) = entry::count(&typed, min) else {
                    let is_unset = typed.trim().is_empty() && value.with_untracked(String::is_empty);
                    return (!is_unset).then_some(expected);
                };
                budget.edit(|session| {
                    session.set_keys(&[(key, Value::Int(n))]);
                    session.set_options(|_| {});
                });
                None
            } />
    }
}
