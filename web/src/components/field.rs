//! Form fields that keep the text being typed. While a field has the focus, only a restored run or a completed action
//! replaces its text.

use leptos::{html::Input, prelude::*};

use super::dynamic::{flag, some_words, words};
use crate::{
    browser,
    state::entry::{Fault, Faults},
    text,
};

/// Keeps an input's text equal to `value`, except while the input has the focus. Returns a function to call on blur.
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

/// An input that accepts valid text. For invalid text it shows what it expects. The text stays until it is corrected or
/// the value changes elsewhere.
#[component]
pub fn Entry(
    /// Id of the input, also for tests.
    id: &'static str,
    /// The input's label, which identifies it in the form's answer.
    label: &'static str,
    /// The input's type: `text` or `number`.
    kind: &'static str,
    /// The minimum for a number's arrow keys.
    #[prop(optional)]
    min: String,
    /// The current value, shown while the field does not have the focus.
    #[prop(into)]
    value: Signal<String>,
    /// Text shown while the input is empty.
    #[prop(into, default = Signal::stored(String::new()))]
    placeholder: Signal<String>,
    /// Whether the input is enabled.
    #[prop(into, default = Signal::stored(true))]
    enabled: Signal<bool>,
    /// The invalid fields of the form.
    faults: Faults,
    /// Called with each edit; returns what is expected if the text is invalid.
    take: Callback<String, Fault>,
) -> impl IntoView {
    let input = NodeRef::<Input>::new();
    let fault = move || faults.of(label);
    let leave = follow(input, value);
    // The value before the first edit since the field was entered.
    let begun = StoredValue::new(None::<String>);
    Effect::new(move |_| {
        let now = value.get();
        if begun.get_value() != Some(now) {
            faults.set(label, None);
        }
    });
    // A fault that was cleared elsewhere, as by a link, leaves its text behind. So does a restored run in the field with
    // the focus.
    let n_resets = StoredValue::new(0);
    Effect::new(move |_| {
        let n = faults.n_resets();
        let is_reset = n_resets.get_value() != n;
        n_resets.set_value(n);
        if is_reset {
            begun.set_value(None);
        }
        let has_focus = input.get_untracked().is_some_and(|input| browser::has_focus(&input));
        if fault().is_none() && (is_reset || !has_focus) {
            leave();
        }
    });
    let said = move || fault().map(text::fault);
    let fault_id = format!("{id}-fault");
    let described_by = fault_id.clone();
    view! {
        <span class="entry">
            <input class="input entry__input" type=kind inputmode="decimal" autocomplete="off" spellcheck="false"
                id=id data-testid=id min=min step="any" node_ref=input placeholder=words(move || placeholder.get())
                title=some_words(said) aria-invalid=some_words(move || fault().map(|_| "true".to_owned()))
                aria-describedby=some_words(move || fault().map(|_| described_by.clone()))
                prop:disabled=flag(move || !enabled.get())
                on:input:target=move |event| {
                    let own = begun.get_value().unwrap_or_else(|| value.get_untracked());
                    begun.set_value(Some(own.clone()));
                    let found = take.run(event.target().value());
                    // The beginning of an invalid text may have been a valid value.
                    if found.is_some() && value.get_untracked() != own {
                        take.run(own);
                    }
                    faults.set(label, found);
                }
                on:blur=move |_| {
                    begun.set_value(None);
                    if untrack(fault).is_none() {
                        leave();
                    }
                } />
            <span class="entry__fault" id=fault_id aria-live="polite">{some_words(said)}</span>
        </span>
    }
}

/// A label and a text field with a tooltip.
#[component]
pub fn TextField(
    /// Id of the field, also for tests.
    id: &'static str,
    /// The field's label.
    label: &'static str,
    /// The tooltip.
    hint: &'static str,
    /// The current value, shown while the field does not have the focus.
    #[prop(into)]
    value: Signal<String>,
    /// Text shown while the field is empty.
    #[prop(into, default = Signal::stored(String::new()))]
    placeholder: Signal<String>,
    /// The invalid fields of the form.
    faults: Faults,
    /// Called with each edit; returns what is expected if the text is invalid.
    #[prop(into)]
    take: Callback<String, Fault>,
) -> impl IntoView {
    view! {
        <div class="field" title=hint>
            <label class="field__label" for=id>{label}</label>
            <Entry id label kind="text" value placeholder faults take />
        </div>
    }
}

/// A label and a drop-down list, with choices identified by index.
#[component]
pub fn Choice(
    /// Id of the list, also for tests.
    id: &'static str,
    /// The list's label.
    label: &'static str,
    /// The tooltip.
    #[prop(optional)]
    hint: &'static str,
    /// The labels of the choices.
    choices: Vec<&'static str>,
    /// Index of the selected choice.
    #[prop(into)]
    chosen: Signal<Option<usize>>,
    /// Called with the index that the user selects.
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

/// A switch with a label.
#[component]
pub fn Toggle(
    /// Id of the switch, also for tests.
    id: &'static str,
    /// The switch's label.
    label: &'static str,
    /// The tooltip.
    #[prop(optional)]
    hint: &'static str,
    /// Whether the switch is on.
    #[prop(into)]
    on: Signal<bool>,
    /// Whether the switch is enabled.
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
