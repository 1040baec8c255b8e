//! The form of nanoGPT's keys: it shows what the text says, and writes into the text.

use headroom_shared::{decimal, nanogpt::Value};
use leptos::prelude::*;
use web_sys::KeyboardEvent;

use super::dynamic::{flag, words};
use super::field::{Choice, Entry, Toggle};
use crate::{
    state::{
        budget::Budget,
        entry,
        fields::{NUMBERS, NumberKey, nearest_head_count, next_head_count, next_width, step_width},
        presets::{MODELS, Model},
    },
    text::{self, t},
};

const DTYPES: [&str; 3] = ["bfloat16", "float16", "float32"];

/// The form.
#[component]
pub fn RunForm(
    /// The page.
    budget: Budget,
) -> impl IntoView {
    let shape_is_free = budget.ask(|answer| !answer.shape_is_loaded());
    view! {
        <form class="form" autocomplete="off" on:submit=|event| event.prevent_default()>
            <div class="form__row form__row--models"><Models budget /></div>
            {NUMBERS.into_iter().map(|number| view! { <NumberField budget number /> }).collect_view()}
            <div class="form__row form__row--switches">
                <Dtype budget />
                <Switch budget key="compile" label=t(text::COMPILE) />
                <Switch budget key="bias" label=t(text::BIAS) enabled=shape_is_free />
            </div>
        </form>
    }
}

fn hint(key: &str) -> &'static str {
    text::doc(key)
}

/// The list of dtypes.
#[component]
pub fn Dtype(
    /// The page.
    budget: Budget,
) -> impl IntoView {
    let dtype = budget.ask(|answer| {
        let word = answer.word("dtype");
        DTYPES.iter().position(|dtype| *dtype == word)
    });
    let choose = move |index: usize| {
        let dtype = Value::Str(DTYPES[index].to_owned());
        budget.session.update(|session| session.set_keys(&[("dtype", dtype)]));
    };
    view! {
        <Choice id="dtype" label=t(text::DTYPE) choices=DTYPES.to_vec() chosen=dtype hint=hint("dtype") on_choose=choose />
    }
}

/// A key that is true or false.
#[component]
pub fn Switch(
    /// The page.
    budget: Budget,
    /// nanoGPT's name.
    key: &'static str,
    /// Its label.
    label: &'static str,
    /// Whether it does anything now.
    #[prop(into, default = Signal::stored(true))]
    enabled: Signal<bool>,
) -> impl IntoView {
    let set = move |on: bool| budget.session.update(|session| session.set_keys(&[(key, Value::Bool(on))]));
    view! {
        <Toggle id=key label on=budget.ask(move |answer| answer.flag(key)) hint=hint(key) enabled on_change=set />
    }
}

/// The list of shapes; it says which one the config has.
#[component]
pub fn Models(
    /// The page.
    budget: Budget,
) -> impl IntoView {
    let loaded = budget.ask(crate::state::answer::Answer::shape_is_loaded);
    let chosen = budget.ask(|answer| {
        let shape = (answer.count("n_layer")?, answer.count("n_head")?, answer.count("n_embd")?);
        Model::of(shape.0, shape.1, shape.2)
    });
    let choose = move |index: usize| {
        let changes = MODELS[index].changes(loaded.get_untracked());
        budget.session.update(|session| session.set_keys(&changes));
    };
    view! {
        <div class="field">
            <label class="field__label" for="model">{t(text::MODEL)}</label>
            <select class="input field__input" id="model" data-testid="model"
                prop:value=words(move || chosen.get().map_or_else(String::new, |index| index.to_string()))
                on:change:target=move |event| {
                    if let Ok(index) = event.target().value().parse() {
                        choose(index);
                    }
                }>
                <option value="" disabled=true selected=flag(move || chosen.get().is_none())>
                    {words(move || if loaded.get() { t(text::MODEL_LOADED) } else { t(text::MODEL_OTHER) }.to_owned())}
                </option>
                {MODELS.iter().enumerate().map(|(index, model)| view! {
                    <option value=index.to_string() selected=flag(move || chosen.get() == Some(index))>{model.label}</option>
                }).collect_view()}
            </select>
        </div>
    }
}

/// A key's name, its slider and its field.
#[component]
pub fn NumberField(
    /// The page.
    budget: Budget,
    /// The key.
    number: NumberKey,
) -> impl IntoView {
    let NumberKey { key, min, max, step, is_real, is_shape } = number;
    let shown = budget.ask(move |answer| answer.number_text(key));
    let largest = move || shown.with(|shown| decimal::parse(shown).unwrap_or(min)).max(max);
    let enabled = budget.ask(move |answer| !(is_shape && answer.shape_is_loaded()));
    let take = Callback::new(move |typed: String| {
        let value =
            if is_real { entry::share(&typed).map(Value::Float) } else { entry::count(&typed, 1).map(Value::Int) };
        let Some(value) = value else { return Some(if is_real { text::A_SHARE } else { text::A_COUNT }) };
        budget.session.update(|session| session.set_keys(&[(key, value)]));
        None
    });
    let slide = move |moved: String| {
        let count = |key: &str| budget.answer.with_untracked(|answer| answer.0.count(key).unwrap_or(1));
        let moved = match (key, moved.parse::<u64>()) {
            ("n_head", Ok(wanted)) => nearest_head_count(count("n_embd"), wanted).to_string(),
            ("n_embd", Ok(wanted)) => next_width(count("n_head"), wanted).to_string(),
            _ => moved,
        };
        take.run(moved);
    };
    // A step of the slider itself may round back to where it was.
    let step_by_key = move |event: KeyboardEvent| {
        let is_up = match event.key().as_str() {
            "ArrowUp" | "ArrowRight" | "PageUp" => true,
            "ArrowDown" | "ArrowLeft" | "PageDown" => false,
            _ => return,
        };
        let count = |key: &str| budget.answer.with_untracked(|answer| answer.0.count(key).unwrap_or(1));
        let (n_head, n_embd) = (count("n_head"), count("n_embd"));
        let next = match key {
            "n_head" => next_head_count(n_embd, n_head, is_up),
            "n_embd" => step_width(n_head, n_embd, is_up),
            _ => return,
        };
        event.prevent_default();
        take.run(next.to_string());
    };
    let range_id = format!("{key}-range");
    view! {
        <div class="number" title=hint(key)>
            // A long name breaks after an underscore.
            <label class="number__label" for=key>{key.replace('_', "_\u{200b}")}</label>
            <input class="number__range" type="range" id=range_id.clone() data-testid=range_id
                aria-label=format!("{key}, {}", t(text::SLIDER))
                min=decimal::shortest(min) step=decimal::shortest(step)
                max=words(move || decimal::shortest(largest()))
                prop:value=words(move || shown.get()) prop:disabled=flag(move || !enabled.get())
                on:keydown=step_by_key on:input:target=move |event| slide(event.target().value()) />
            <Entry id=key kind="number" min=decimal::shortest(min) value=shown enabled take />
        </div>
    }
}
