//! The form of a trainer's options, which shows the command and edits it.

use headroom_planner::trainers::{
    arguments::{Key, Kind, as_bool},
    input::Trainer,
};
use leptos::prelude::*;

use super::super::{
    actions::CopyButton,
    dynamic::{IntoPart, Part, part, words},
    field::{Choice, Entry, TextField, Toggle},
    long_text::LongText,
    undo::UndoRedo,
};
use crate::{
    state::{
        entry::{self, Fault},
        gpu::OnGpu,
        memo::memo,
        trainer::TrainerPage,
        trainer_form::{Slider, further, key, sliders, switches},
    },
    text::{self, t},
};

/// The form of the shown trainer, and its command.
#[component]
pub fn TrainerForm(
    /// The page's state.
    page: TrainerPage,
) -> impl IntoView {
    let trainer = memo(move || page.session.with(|session| session.trainer));
    let command = move || page.session.with(|session| session.input().command.clone());
    view! {
        <form class="form" autocomplete="off" on:submit=|event| event.prevent_default()>
            {part(move || fields(page, trainer.get()))}
        </form>
        <div class="config">
            <div class="config__head">
                <label class="config__label" for="command">{t(text::TRAINER_COMMAND)}</label>
                <UndoRedo steps=page.steps />
            </div>
            <div class="config__body">
                <LongText id="command" class="input config__text trainers__command" rows="4"
                    replaces=describes_run
                    value=Signal::derive(command)
                    on_change=move |text: String| page.edit(|session| session.input_mut().command = text) />
                <div class="config__ways">
                    <CopyButton id="copy-command" label=t(text::COPY_COMMAND) content=move |()| Some(untrack(command)) />
                </div>
            </div>
        </div>
    }
}

/// Whether a pasted text describes a whole run: a command with its program.
fn describes_run(text: &str) -> bool {
    text.contains("base_train") || text.contains(".py")
}

fn fields(page: TrainerPage, trainer: Trainer) -> impl IntoView {
    let first = sliders(trainer).iter().filter_map(|slider| Some(number(page, key(trainer, slider.0)?, *slider)));
    let second = switches(trainer).iter().filter_map(|name| Some(field(page, key(trainer, name)?)));
    view! {
        {first.collect::<Vec<_>>()}
        <div class="more__fields">{second.collect::<Vec<_>>()}</div>
        <details class="more" id="more">
            <summary class="more__summary">{t(text::MORE)}</summary>
            <div class="more__fields">
                {further(trainer).map(|key| field(page, key)).collect::<Vec<_>>()}
                {environment(page)}
            </div>
        </details>
    }
}

/// The allocator's setting and the version of PyTorch.
fn environment(page: TrainerPage) -> impl IntoView {
    let expandable = memo(move || page.options().expandable_segments);
    view! {
        <Toggle id="expandable_segments" label=t(text::EXPANDABLE) hint=t(text::EXPANDABLE_HINT) on=expandable
            on_change=move |on| page.edit_options(|options| options.expandable_segments = on) />
        <TextField id="torch" label=t(text::TORCH) hint=t(text::TORCH_HINT) value=memo(move || page.options().torch)
            faults=page.faults() take=move |typed: String| {
                let Some(torch) = entry::torch(&typed) else { return Some(text::A_VERSION) };
                page.edit_options(|options| options.torch = torch);
                None
            } />
    }
}

/// The value of an option as written, or its default.
fn value(page: TrainerPage, key: &'static Key) -> Memo<String> {
    memo(move || page.session.with(|session| session.input().value(key)))
}

/// Sets an option to a typed text. Returns what is expected if the text is not a value of the option.
fn take(page: TrainerPage, key: &'static Key, typed: &str) -> Fault {
    let value = match key.kind {
        Kind::Integer(min, _) => match entry::count(typed, min) {
            Some(n) => n.to_string(),
            None => return Some(if min == 1 { text::A_WHOLE_NUMBER_FROM_1 } else { text::A_WHOLE_NUMBER }),
        },
        _ => typed.trim().to_owned(),
    };
    page.edit(|session| session.set(key, &value));
    None
}

/// The label of an option. A long name can wrap after an underscore or a dash.
fn name(key: &'static Key) -> impl IntoView {
    key.name.split_inclusive(['_', '-']).map(|part| view! { {part} <wbr /> }).collect_view()
}

/// An option with a slider and a number field.
fn number(page: TrainerPage, key: &'static Key, (_, min, max, step): Slider) -> Part {
    let value = value(page, key);
    let is_sliding = page.answer.shown.is_sliding;
    let end = move || value.with(|value| value.parse::<u64>().unwrap_or(0)).max(max).to_string();
    let slide = move |moved: String| {
        is_sliding.set(true);
        take(page, key, &moved);
    };
    view! {
        <div class="number">
            <label class="number__label" for=key.name>{name(key)}</label>
            <input class="number__range" type="range" id=format!("{}-range", key.name)
                aria-label=format!("{}, {}", key.name, t(text::SLIDER))
                min=min.to_string() max=words(end) step=step.to_string() aria-valuetext=words(move || value.get())
                prop:value=words(move || value.get())
                on:input:target=move |event| slide(event.target().value())
                on:change=move |_| is_sliding.set(false) />
            <Entry id=key.name label=key.name faults=page.faults() kind="number" min=min.to_string() value=value
                take=Callback::new(move |typed: String| take(page, key, &typed)) />
        </div>
    }
    .into_part()
}

/// An option with the field of its type.
fn field(page: TrainerPage, key: &'static Key) -> Part {
    let value = value(page, key);
    match key.kind {
        Kind::Choice(choices) => {
            let labels = choices.iter().map(|choice| if choice.is_empty() { "–" } else { *choice }).collect();
            let chosen = move || value.with(|value| choices.iter().position(|choice| choice == value));
            let choose = move |index: usize| page.edit(|session| session.set(key, choices[index]));
            view! { <Choice id=key.name label=key.name choices=labels chosen=Signal::derive(chosen) on_choose=choose /> }
                .into_part()
        }
        Kind::Switch => {
            let is_on = move || value.with(|value| as_bool(value)) == Some(true);
            let set = move |on: bool| page.edit(|session| session.set(key, if on { "True" } else { "False" }));
            view! { <Toggle id=key.name label=key.name on=Signal::derive(is_on) on_change=set /> }.into_part()
        }
        Kind::Integer(..) | Kind::Float | Kind::Text => view! {
            <TextField id=key.name label=key.name hint="" value=value faults=page.faults()
                take=move |typed: String| take(page, key, &typed) />
        }
        .into_part(),
    }
}
