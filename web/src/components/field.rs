//! Fields that keep what a person is typing: a value from elsewhere is written in only while nobody is in the field.

use leptos::{html::Input, prelude::*};

use super::dynamic::{flag, some_words, words};
use crate::{browser, state::entry::Fault, text};

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

/// An input that takes what it understands. Else it says what it would take, and what was typed stays in it until it is
/// mended or the value changes elsewhere.
#[component]
pub fn Entry(
    /// The input's id, and the test's.
    id: &'static str,
    /// The input's type: `text` or `number`.
    kind: &'static str,
    /// The least that the arrow keys of a number reach.
    #[prop(optional)]
    min: String,
    /// What stands in it while nobody types.
    #[prop(into)]
    value: Signal<String>,
    /// Shown where it is empty.
    #[prop(into, default = Signal::stored(String::new()))]
    placeholder: Signal<String>,
    /// Whether it does anything now.
    #[prop(into, default = Signal::stored(true))]
    enabled: Signal<bool>,
    /// Called with each edit.
    take: Callback<String, Fault>,
) -> impl IntoView {
    let input = NodeRef::<Input>::new();
    let fault = RwSignal::new(Fault::None);
    let leave = follow(input, value);
    Effect::new(move |_| {
        value.track();
        fault.set(None);
    });
    let said = move || fault.get().map(|expected| text::fault(expected, &value.get()));
    let fault_id = format!("{id}-fault");
    let described_by = fault_id.clone();
    view! {
        <span class="entry">
            <input class="input entry__input" type=kind inputmode="decimal" autocomplete="off" spellcheck="false"
                id=id data-testid=id min=min step="any" node_ref=input placeholder=words(move || placeholder.get())
                title=some_words(said) aria-invalid=some_words(move || fault.get().map(|_| "true".to_owned()))
                aria-describedby=some_words(move || fault.get().map(|_| described_by.clone()))
                prop:disabled=flag(move || !enabled.get())
                on:input:target=move |event| {
                    let typed = event.target().value();
                    let found = take.run(typed.clone());
                    // Emptied is on the way to something else, until the field is left.
                    fault.set(found.filter(|_| !typed.is_empty()));
                }
                on:blur:target=move |event| {
                    if fault.get_untracked().is_none() && event.target().value().is_empty() {
                        fault.set(take.run(String::new()));
                    }
                    if fault.get_untracked().is_none() {
                        leave();
                    }
                } />
            <span class="entry__fault" id=fault_id aria-live="polite">{some_words(said)}</span>
        </span>
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
    take: Callback<String, Fault>,
) -> impl IntoView {
    view! {
        <div class="field" title=hint>
            <label class="field__label" for=id>{label}</label>
            <Entry id kind="text" value placeholder take />
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
    choices: Vec<&'static str>,
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
                {choices.into_iter().enumerate().map(|(index, choice)| view! {
                    <option value=index.to_string() selected=flag(move || chosen.get() == Some(index))>{choice}</option>
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
