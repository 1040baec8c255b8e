//! Fields that keep what a person is typing: a value from elsewhere is written in only while nobody is in the field.

use leptos::{html::Input, prelude::*};

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
    on_input: impl Fn(String) + 'static,
) -> impl IntoView {
    let input = NodeRef::<Input>::new();
    let leave = follow(input, value);
    view! {
        <div class="field" title=hint>
            <label class="field__label" for=id>{label}</label>
            <input class="input field__input" type="text" inputmode="decimal" autocomplete="off" spellcheck="false"
                id=id data-testid=id node_ref=input placeholder=placeholder
                on:input:target=move |event| on_input(event.target().value())
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
    on_choose: impl Fn(usize) + 'static,
) -> impl IntoView {
    view! {
        <div class="field" title=hint>
            <label class="field__label" for=id>{label}</label>
            <select class="input field__input" id=id data-testid=id
                prop:value=move || chosen.get().map_or_else(String::new, |index| index.to_string())
                on:change:target=move |event| {
                    if let Ok(index) = event.target().value().parse() {
                        on_choose(index);
                    }
                }>
                {choices.iter().enumerate().map(|(index, choice)| view! {
                    <option value=index.to_string() selected=move || chosen.get() == Some(index)>{*choice}</option>
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
    on_change: impl Fn(bool) + 'static,
) -> impl IntoView {
    view! {
        <label class="toggle" title=hint>
            <input type="checkbox" id=id data-testid=id prop:checked=on prop:disabled=move || !enabled.get()
                on:change:target=move |event| on_change(event.target().checked()) />
            <span>{label}</span>
        </label>
    }
}
