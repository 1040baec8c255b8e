//! The card and what else is on it.

use headroom_shared::{nanogpt::Severity, session::Finding};
use leptos::{html::Input, prelude::*};
use web_sys::KeyboardEvent;

use super::dynamic::{flag, part, some_words, words};
use super::field::{TextField, follow};
use crate::{
    state::{
        budget::Budget,
        card::{self, Choice},
        entry, format,
    },
    text::{self, say, t},
};

/// The card's field with its list, and the memory that others hold.
#[component]
pub fn CardPicker(
    /// The page.
    budget: Budget,
    /// Called with the GPU that a person chose.
    #[prop(optional, into)]
    chosen: Option<Callback<String>>,
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
            <GpuField budget chosen />
            <TextField id="other-processes" label=t(text::OTHERS) hint=t(text::OTHERS_HINT) value=others take=take_others />
        </div>
    }
}

/// A combobox: a field with a list that narrows while a person types. Only a choice, Enter or leaving the field changes
/// the GPU: half a name or half a size is never planned.
#[component]
fn GpuField(budget: Budget, chosen: Option<Callback<String>>) -> impl IntoView {
    let input = NodeRef::<Input>::new();
    let value = Memo::new(move |_| budget.session.with(|session| card::field(&session.options)));
    let memory = budget.ask(|answer| {
        let total = answer.plan()?.request.device.total_bytes;
        Some((format::size(total), format::exact_bytes(total)))
    });
    let fault = budget.ask(|answer| {
        let is_of_gpu =
            |finding: &&Finding| finding.severity == Severity::Error && ["gpu", "vram"].contains(&finding.key);
        answer.resolved.findings.iter().find(is_of_gpu).map(|finding| say(&finding.message))
    });
    let leave = follow(input, value.into());
    let open = RwSignal::new(false);
    // What narrows the list: nothing until a person types.
    let typed = RwSignal::new(String::new());
    let active = RwSignal::new(None::<usize>);
    let list = Memo::new(move |_| if open.get() { typed.with(|typed| List::of(typed)) } else { List::default() });
    let set = move |name: &str| {
        budget.session.update(|session| card::set(&mut session.options, name));
        if let Some(chosen) = chosen.filter(|_| card::is_known(name)) {
            chosen.run(name.to_owned());
        }
    };
    let choose = move |name: &str| {
        set(name);
        if let Some(input) = input.get_untracked() {
            input.set_value(name);
        }
        open.set(false);
    };
    // An emptied field goes back to what it was.
    let keep_typed = move || {
        let text = input.get_untracked().map(|input| input.value()).unwrap_or_default();
        if !text.trim().is_empty() && value.with_untracked(|value| *value != text) {
            set(&text);
        }
    };
    let show = move || {
        typed.set(String::new());
        active.set(value.with_untracked(|value| card::position(value)));
        open.set(true);
    };
    let close = move || {
        open.set(false);
        typed.set(String::new());
    };
    let key = move |event: KeyboardEvent| {
        let last = list.with_untracked(List::len).saturating_sub(1);
        match event.key().as_str() {
            "ArrowDown" | "ArrowUp" if !open.get_untracked() => show(),
            "ArrowDown" => active.update(|at| *at = Some(at.map_or(0, |at| (at + 1).min(last)))),
            "ArrowUp" => active.update(|at| *at = Some(at.map_or(0, |at| at.saturating_sub(1)))),
            "Enter" if open.get_untracked() => {
                match active.get_untracked().and_then(|at| list.with_untracked(|list| list.value(at))) {
                    Some(name) => choose(&name),
                    None => {
                        keep_typed();
                        close();
                    }
                }
            }
            "Enter" => keep_typed(),
            "Escape" => {
                close();
                leave();
            }
            _ => return,
        }
        event.prevent_default();
    };
    Effect::new(move |_| {
        if let Some(active) = active.get().filter(|_| open.get()) {
            scroll_to_choice(active);
        }
    });
    view! {
        <div class="field combobox" title=t(text::GPU_HINT)>
            <label class="field__label" for="gpu">{t(text::GPU)}</label>
            <div class="combobox__box">
                <input class="input field__input combobox__input" type="text" id="gpu" data-testid="gpu" role="combobox"
                    autocomplete="off" spellcheck="false" aria-controls="gpu-list" aria-autocomplete="list"
                    aria-expanded=words(move || open.get().to_string()) node_ref=input
                    aria-activedescendant=some_words(move || active.get().filter(|_| open.get()).map(|at| format!("gpu-{at}")))
                    aria-invalid=some_words(move || fault.get().map(|_| "true".to_owned()))
                    aria-describedby=some_words(move || fault.get().map(|_| "gpu-fault".to_owned()))
                    on:focus:target=move |event| event.target().select()
                    on:click=move |_| if !open.get_untracked() { show() }
                    on:input:target=move |event| {
                        typed.set(event.target().value());
                        open.set(true);
                        active.set(list.with_untracked(List::first));
                    }
                    on:keydown=key
                    on:blur=move |_| { keep_typed(); close(); leave(); } />
                <span class="combobox__memory" title=some_words(move || memory.get().map(|(_, exact)| exact))>
                    {some_words(move || memory.get().map(|(size, _)| size))}
                </span>
            </div>
            <span class="combobox__fault" id="gpu-fault" data-testid="gpu-fault" role="status">{some_words(move || fault.get())}</span>
            <ul class="combobox__list" id="gpu-list" role="listbox" aria-label=t(text::GPU)
                class:combobox__list--open=flag(move || open.get())>
                {part(move || rows(&list.get(), active, Callback::new(move |name: String| choose(&name))))}
            </ul>
        </div>
    }
}

/// What the open list offers.
#[derive(Clone, Default, PartialEq)]
struct List {
    choices: Vec<Choice>,
    /// The typed text where it is an amount of memory: the last row, a GPU without a name.
    size: Option<String>,
    /// Whether the typed size is of CUDA's kind (GiB, MiB) rather than of a box's (GB).
    is_exact: bool,
    /// Whether it is the whole table.
    is_whole: bool,
}

impl List {
    fn of(typed: &str) -> Self {
        let is_size = card::is_size(typed);
        Self {
            choices: card::matching(typed),
            size: is_size.then(|| typed.trim().to_owned()),
            is_exact: typed.to_ascii_lowercase().contains('i'),
            is_whole: typed.trim().is_empty(),
        }
    }

    fn len(&self) -> usize {
        self.choices.len() + usize::from(self.size.is_some())
    }

    /// What Enter takes after typing.
    fn first(&self) -> Option<usize> {
        let takes_size = self.size.is_some() && (self.is_exact || self.choices.is_empty());
        (self.len() > 0).then_some(if takes_size { self.choices.len() } else { 0 })
    }

    /// What the field reads once a row is chosen.
    fn value(&self, at: usize) -> Option<String> {
        self.choices.get(at).map(|choice| choice.name.to_owned()).or_else(|| self.size.clone())
    }
}

fn rows(list: &List, active: RwSignal<Option<usize>>, choose: Callback<String>) -> impl IntoView + use<> {
    let row = move |index: usize, value: String, label: String, sizes: String| {
        view! {
            <li class="combobox__choice" role="option" id=format!("gpu-{index}")
                aria-selected=words(move || (active.get() == Some(index)).to_string())
                // Before the blur that a click would cause.
                on:pointerdown=move |event| { event.prevent_default(); choose.run(value.clone()); }>
                <span>{label}</span>
                <span class="combobox__size">{sizes}</span>
            </li>
        }
        .into_any()
    };
    let mut rows: Vec<AnyView> = Vec::new();
    let mut segment = None;
    for (index, choice) in list.choices.iter().enumerate() {
        if list.is_whole && segment.replace(choice.segment) != Some(choice.segment) {
            let heading = t(card::heading(choice.segment));
            rows.push(view! { <li class="combobox__group" role="presentation">{heading}</li> }.into_any());
        }
        let sizes = format!("{} GB · {}", choice.nominal_gb, choice.total);
        rows.push(row(index, choice.name.to_owned(), choice.name.to_owned(), sizes));
    }
    if let Some(size) = &list.size {
        rows.push(row(list.choices.len(), size.clone(), say(&text::gpu_of_size(size.as_str())), String::new()));
    }
    if rows.is_empty() {
        let none = t(text::NO_CARD_MATCHES);
        rows.push(
            view! { <li class="combobox__none" role="option" aria-disabled="true" aria-selected="false">{none}</li> }
                .into_any(),
        );
    }
    rows
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
