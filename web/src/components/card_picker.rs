//! The card and what else is on it.

use leptos::{html::Input, prelude::*};
use web_sys::KeyboardEvent;

use super::dynamic::{flag, part, some_words, words};
use super::field::{TextField, follow};
use crate::{
    state::{budget::Budget, card, entry, format},
    text::{self, t},
};

/// The card's field with its list, and the memory that others hold.
#[component]
pub fn CardPicker(
    /// The page.
    budget: Budget,
) -> impl IntoView {
    let others = Memo::new(move |_| budget.session.with(|s| format::gib_field(s.options.other_processes_bytes)));
    let take_others = move |typed: String| {
        let bytes = if typed.trim().is_empty() { Some(0) } else { entry::size(&typed, "GiB") };
        let Some(bytes) = bytes else { return Some(text::A_SIZE_IN_GIB) };
        budget.session.update(|session| session.options.other_processes_bytes = bytes);
        None
    };
    view! {
        <div class="card">
            <GpuField budget />
            <TextField id="other-processes" label=t(text::OTHERS) hint=t(text::OTHERS_HINT) value=others take=take_others />
        </div>
    }
}

/// A combobox: a field with a list that narrows while a person types.
#[component]
fn GpuField(budget: Budget) -> impl IntoView {
    let input = NodeRef::<Input>::new();
    let value = Memo::new(move |_| budget.session.with(|session| card::field(&session.options)));
    let memory = budget.ask(|answer| {
        let total = answer.plan()?.request.device.total_bytes;
        Some((format::size(total), format::exact_bytes(total)))
    });
    let leave = follow(input, value.into());
    let open = RwSignal::new(false);
    // What narrows the list: nothing until a person types.
    let typed = RwSignal::new(String::new());
    let active = RwSignal::new(0_usize);
    let choices = Memo::new(move |_| if open.get() { card::matching(&typed.get()) } else { Vec::new() });
    let set = move |name: &str| budget.session.update(|session| card::set(&mut session.options, name));
    let choose = move |name: &str| {
        set(name);
        if let Some(input) = input.get_untracked() {
            input.set_value(name);
        }
        open.set(false);
    };
    let keep_typed = move || {
        let text = input.get_untracked().map(|input| input.value()).unwrap_or_default();
        if value.with_untracked(|value| *value != text) {
            set(&text);
        }
    };
    let show = move || {
        typed.set(String::new());
        active.set(value.with_untracked(|value| card::choices().position(|(name, _)| name == value)).unwrap_or(0));
        open.set(true);
    };
    let key = move |event: KeyboardEvent| {
        let last = choices.with_untracked(Vec::len).saturating_sub(1);
        match event.key().as_str() {
            "ArrowDown" | "ArrowUp" if !open.get_untracked() => show(),
            "ArrowDown" => active.update(|at| *at = (*at + 1).min(last)),
            "ArrowUp" => active.update(|at| *at = at.saturating_sub(1)),
            "Enter" if open.get_untracked() => {
                if let Some((name, _)) = choices.with_untracked(|all| all.get(active.get_untracked()).cloned()) {
                    choose(name);
                }
            }
            "Enter" => keep_typed(),
            "Escape" if open.get_untracked() => open.set(false),
            _ => return,
        }
        event.prevent_default();
    };
    Effect::new(move |_| {
        if open.get() {
            scroll_to_choice(active.get());
        }
    });
    view! {
        <div class="field combobox" title=t(text::GPU_HINT)>
            <label class="field__label" for="gpu">{t(text::GPU)}</label>
            <input class="input field__input combobox__input" type="text" id="gpu" data-testid="gpu" role="combobox"
                autocomplete="off" spellcheck="false" aria-controls="gpu-list" aria-autocomplete="list"
                aria-expanded=words(move || open.get().to_string()) node_ref=input
                aria-activedescendant=some_words(move || open.get().then(|| format!("gpu-{}", active.get())))
                on:focus:target=move |event| event.target().select()
                on:click=move |_| if !open.get_untracked() { show() }
                on:input:target=move |event| {
                    let text = event.target().value();
                    // Half a name is no card yet: the plan stays until one is known or the field is left.
                    if card::is_known(&text) {
                        set(&text);
                    }
                    typed.set(text);
                    active.set(0);
                    open.set(true);
                }
                on:keydown=key
                on:blur=move |_| { keep_typed(); open.set(false); leave(); } />
            <span class="combobox__memory" title=some_words(move || memory.get().map(|(_, exact)| exact))>
                {some_words(move || memory.get().map(|(size, _)| size))}
            </span>
            <ul class="combobox__list" id="gpu-list" role="listbox" aria-label=t(text::GPU)
                class:combobox__list--open=flag(move || open.get())>
                {part(move || {
                    let choices = choices.get();
                    let none = (open.get() && choices.is_empty()).then(|| view! {
                        <li class="combobox__none" role="option" aria-disabled="true" aria-selected="false">
                            {t(text::NO_CARD_MATCHES)}
                        </li>
                    });
                    let all = choices.into_iter().enumerate().map(|(index, (name, memory))| view! {
                        <li class="combobox__choice" role="option" id=format!("gpu-{index}")
                            aria-selected=words(move || (active.get() == index).to_string())
                            // Before the blur that a click would cause.
                            on:pointerdown=move |event| { event.prevent_default(); choose(name); }>
                            <span>{name}</span>
                            <span class="combobox__size">{memory}</span>
                        </li>
                    }).collect_view();
                    view! { {all} {none} }
                })}
            </ul>
        </div>
    }
}

/// Keeps the active choice in the list's view once it is drawn.
fn scroll_to_choice(index: usize) {
    request_animation_frame(move || {
        if let Some(choice) = document().get_element_by_id(&format!("gpu-{index}")) {
            let into_view = web_sys::ScrollIntoViewOptions::new();
            into_view.set_block(web_sys::ScrollLogicalPosition::Nearest);
            choice.scroll_into_view_with_scroll_into_view_options(&into_view);
        }
    });
}
