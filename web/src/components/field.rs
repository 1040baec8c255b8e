//! Fields that keep what a person is typing: a value from elsewhere is written in only while nobody is in the field.

use leptos::{html::Input, prelude::*};

use super::dynamic::{flag, words};
use crate::browser;

/// Keeps an input's text equal to `value`, except while someone types in it; gives what to call when it is left.
pub fn follow(input: NodeRef<Input>, value: Signal<String>) -> impl Fn() + Copy + 'static {
    Effect::new(move |_| {
        let value = value.get();
        if let Some(input) = input.get()
            && !browser::has_focus(&input)
            && input.value() != value
        {
            input.set_value(&value);
        }
    });
    move || {
        if let Some(input) = input.get_untracked() {
            input.set_value(&value.get_untracked());
        }
    }
}

/// A label, a text field, and what it is for on hover.
#[component]
pub fn TextField(
    /// The field's id, and the test's.
    id: &'static str,
    /// Its label.
    label: &'static str,
    /// What it is for.
    hint: &'static str,
    /// What stands in it while nobody types.
    #[prop(into)]
    value: Signal<String>,
    /// Shown where it is empty.
    #[prop(into, default = Signal::stored(String::new()))]
    placeholder: Signal<String>,
    /// Called with each edit.
    #[prop(into)]
    on_input: Callback<String>,
) -> impl IntoView {
    let input = NodeRef::<Input>::new();
    let leave = follow(input, value);
    view! {
        <div class="field" title=hint>
            <label class="field__label" for=id>{label}</label>
            <input class="input field__input" type="text" inputmode="decimal" autocomplete="off" spellcheck="false"
                id=id data-testid=id node_ref=input placeholder=words(move || placeholder.get())
                on:input:target=move |event| on_input.run(event.target().value())
                on:blur=move |_| leave() />
        </div>
    }
}

/// A label and a list of choices, by position.
#[component]
pub fn Choice(
    /// The list's id, and the test's.
    id: &'static str,
    /// Its label.
    label: &'static str,
    /// What it is for.
    #[prop(optional)]
    hint: &'static str,
    /// The choices.
    choices: &'static [&'static str],
    /// Which one is chosen.
    #[prop(into)]
    chosen: Signal<Option<usize>>,
    /// Called with the one that a person chooses.
    #[prop(into)]
    on_choose: Callback<usize>,
) -> impl IntoView {
    view! {
        <div class="field" title=hint>
            <label class="field__label" for=id>{label}</label>
            <select class="input field__input" id=id data-testid=id
                prop:value=words(move || chosen.get().map_or_else(String::new, |index| index.to_string()))
                on:change:target=move |event| {
                    if let Ok(index) = event.target().value().parse() {
                        on_choose.run(index);
                    }
                }>
                {choices.iter().enumerate().map(|(index, choice)| view! {
                    <option value=index.to_string() selected=flag(move || chosen.get() == Some(index))>{*choice}</option>
                }).collect_view()}
            </select>
        </div>
    }
}

/// A switch with its label.
#[component]
pub fn Toggle(
    /// The switch's id, and the test's.
    id: &'static str,
    /// Its label.
    label: &'static str,
    /// What it does.
    #[prop(optional)]
    hint: &'static str,
    /// Whether it is on.
    #[prop(into)]
    on: Signal<bool>,
    /// Whether it does anything now.
    #[prop(into, default = Signal::stored(true))]
    enabled: Signal<bool>,
    /// Called with the new state.
    #[prop(into)]
    on_change: Callback<bool>,
) -> impl IntoView {
    view! {
        <label class="toggle" title=hint>
            <input type="checkbox" id=id data-testid=id prop:checked=flag(move || on.get()) prop:disabled=flag(move || !enabled.get())
                on:change:target=move |event| on_change.run(event.target().checked()) />
            <span>{label}</span>
        </label>
    }
}
