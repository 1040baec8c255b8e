//! The form of nanoGPT's keys, which shows the config text and edits it.

use std::time::Duration;

use headroom_planner::nanogpt::Value;
use headroom_text::decimal;
use leptos::{leptos_dom::helpers::TimeoutHandle, prelude::*};

use super::dynamic::{flag, words};
use super::field::{Choice, Entry, Toggle};
use crate::{
    state::{
        budget::Budget,
        entry,
        fields::{NUMBERS, NumberKey, head_counts, head_position, width_step},
        memo::memo,
        presets::{MODELS, Model},
    },
    text::{self, t},
};

/// The pause after a slider's last movement, after which it rests.
const REST_DELAY: Duration = Duration::from_millis(150);

const DTYPES: [&str; 3] = ["bfloat16", "float16", "float32"];

/// The form of nanoGPT's keys.
#[component]
pub fn RunForm(
    /// The calculator's state.
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

/// The drop-down list of dtypes.
#[component]
pub fn Dtype(
    /// The calculator's state.
    budget: Budget,
) -> impl IntoView {
    let dtype = budget.ask(|answer| {
        let word = answer.word("dtype");
        DTYPES.iter().position(|dtype| *dtype == word)
    });
    let choose = move |index: usize| {
        let dtype = Value::Str(DTYPES[index].to_owned());
        budget.edit(|session| session.set_keys(&[("dtype", dtype)]));
    };
    view! {
        <Choice id="dtype" label=t(text::DTYPE) choices=DTYPES.to_vec() chosen=dtype hint=hint("dtype") on_choose=choose />
    }
}

/// A switch for a boolean key.
#[component]
pub fn Switch(
    /// The calculator's state.
    budget: Budget,
    /// nanoGPT's name of the key.
    key: &'static str,
    /// The switch's label.
    label: &'static str,
    /// Whether the switch is enabled.
    #[prop(into, default = Signal::stored(true))]
    enabled: Signal<bool>,
) -> impl IntoView {
    let set = move |on: bool| budget.edit(|session| session.set_keys(&[(key, Value::Bool(on))]));
    view! {
        <Toggle id=key label on=budget.ask(move |answer| answer.flag(key)) hint=hint(key) enabled on_change=set />
    }
}

/// The drop-down list of model shapes, with the config's shape selected.
#[component]
pub fn Models(
    /// The calculator's state.
    budget: Budget,
) -> impl IntoView {
    let loaded = budget.ask(crate::state::answer::PlannedSession::shape_is_loaded);
    let chosen = budget.ask(|answer| {
        let shape = (answer.count("n_layer")?, answer.count("n_head")?, answer.count("n_embd")?);
        Model::of(shape.0, shape.1, shape.2)
    });
    let choose = move |index: usize| {
        let changes = MODELS[index].changes(loaded.get_untracked());
        budget.commit(|session| session.set_keys(&changes));
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

/// A key's name, slider and number field.
#[component]
pub fn NumberField(
    /// The calculator's state.
    budget: Budget,
    /// The edited key.
    number: NumberKey,
) -> impl IntoView {
    let NumberKey { key, min, max, step, is_real, is_shape } = number;
    let shown = budget.ask(move |answer| answer.number_text(key));
    let largest = move || shown.with(|shown| decimal::parse(shown).unwrap_or(min)).max(max);
    let enabled = budget.ask(move |answer| !(is_shape && answer.shape_is_loaded()));
    let take = Callback::new(move |typed: String| {
        let value =
            if is_real { entry::share(&typed).map(Value::Float) } else { entry::count(&typed, 1).map(Value::Int) };
        let Some(value) = value else { return Some(if is_real { text::A_SHARE } else { text::A_WHOLE_NUMBER_FROM_1 }) };
        budget.edit(|session| session.set_keys(&[(key, value)]));
        None
    });
    // The heads have a position for each divisor of the channels, and the channels are multiples of the heads. So the
    // thumb always points at the value.
    let count = move |key: &'static str| budget.ask(move |answer| answer.count(key).unwrap_or(1));
    let (n_head, n_embd) = (count("n_head"), count("n_embd"));
    let heads = memo(move || if key == "n_head" { head_counts(n_embd.get(), n_head.get()) } else { Vec::new() });
    let range = move || match key {
        "n_head" => [0.0, heads.with(|heads| heads.len().saturating_sub(1) as f64), 1.0],
        "n_embd" => {
            let width = width_step(n_head.get()) as f64;
            [width, largest(), width]
        }
        _ => [min, largest(), step],
    };
    let limit = move |index: usize| words(move || decimal::shortest(range()[index]));
    let position = move || match key {
        "n_head" => heads.with(|heads| head_position(heads, n_head.get())).to_string(),
        _ => shown.get(),
    };
    let slide = move |moved: String| {
        let at = moved.parse::<usize>().ok();
        let n_head = at.and_then(|at| heads.with_untracked(|heads| heads.get(at).copied()));
        take.run(n_head.map_or(moved, |n_head| n_head.to_string()));
    };
    let rests_at = StoredValue::new(None::<TimeoutHandle>);
    let slide = move |moved: String| {
        if let Some(pending) = rests_at.get_value() {
            pending.clear();
        }
        rests_at.set_value(set_timeout_with_handle(move || budget.shown.is_sliding.set(false), REST_DELAY).ok());
        if !budget.shown.is_sliding.get_untracked() {
            budget.shown.is_sliding.set(true);
        }
        slide(moved);
    };
    let range_id = format!("{key}-range");
    view! {
        <div class="number" title=hint(key)>
            // A long name can wrap after an underscore. `<wbr>` adds no character to the name.
            <label class="number__label" for=key>
                {key.split_inclusive('_').map(|part| view! { {part} <wbr /> }).collect_view()}
            </label>
            <input class="number__range" type="range" id=range_id.clone() data-testid=range_id
                aria-label=format!("{key}, {}", t(text::SLIDER))
                min=limit(0) max=limit(1) step=limit(2) aria-valuetext=words(move || shown.get())
                prop:value=words(position) prop:disabled=flag(move || !enabled.get())
                on:input:target=move |event| slide(event.target().value()) />
            <Entry id=key label=key faults=budget.faults kind="number" min=decimal::shortest(min) value=shown enabled take />
        </div>
    }
}
