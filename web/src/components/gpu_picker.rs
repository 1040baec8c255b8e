//! The GPU and the memory of other processes on it.

use leptos::{html::Input, prelude::*};
use web_sys::KeyboardEvent;

use super::dynamic::{IntoPart, Part, flag, part, some_words, words};
use super::field::{TextField, follow};
use crate::{
    state::{
        entry, format,
        gpu::{self, GpuDraft, List, Meaning, OnGpu},
        memo::memo,
    },
    text::{self, say, t},
};

/// The GPU field with its list, and the field for other processes' memory.
#[component]
pub fn GpuPicker<P: OnGpu>(
    /// The page's state.
    page: P,
    /// Called with the GPU that the user selects.
    #[prop(optional, into)]
    chosen: Option<Callback<String>>,
) -> impl IntoView {
    let others = memo(move || format::gib_field(page.options().other_processes_bytes));
    let take_others = move |typed: String| {
        let bytes = if typed.trim().is_empty() { Some(0) } else { entry::size(&typed, "GiB") };
        let Some(bytes) = bytes else { return Some(text::A_SIZE_IN_GIB) };
        page.edit_options(|options| options.other_processes_bytes = bytes);
        None
    };
    view! {
        <div class="card">
            <GpuField page chosen />
            <TextField id="other-processes" label=t(text::OTHERS) hint=t(text::OTHERS_HINT) value=others
                faults=page.faults() take=take_others />
        </div>
    }
}

/// A combobox whose list narrows while the user types.
///
/// It implements "list autocomplete with manual selection" of the ARIA Authoring Practices. Enter, Tab and leaving the
/// field accept the row that the arrow keys reached, or the only one that the text means. Escape restores the selected
/// GPU. Any other text stays in the field and is marked. Until the field has a GPU again, there is no verdict.
#[component]
fn GpuField<P: OnGpu>(page: P, chosen: Option<Callback<String>>) -> impl IntoView {
    let input = NodeRef::<Input>::new();
    let value = memo(move || gpu::field(&page.options()));
    let draft = page.draft();
    let memory = memo(move || page.gpu_bytes().map(|total| (format::size(total), format::exact_bytes(total))));
    let unknown = memo(move || page.gpu_fault().map(|message| say(&message)));
    let leave = follow(input, value.into());
    // Back can change the GPU while the field has the focus. The old text would then count as a choice on blur.
    Effect::new(move |_| {
        value.track();
        if draft.with(Option::is_none) {
            leave();
        }
    });
    let open = RwSignal::new(false);
    // The text that filters the list; empty until the user types.
    let typed = RwSignal::new(String::new());
    let active = RwSignal::new(None::<usize>);
    // Whether the user tried to accept a text that several GPUs match.
    let refused = RwSignal::new(false);
    let list = memo(move || if open.get() { typed.with(|typed| List::of(typed)) } else { List::default() });
    let text = move || input.get_untracked().map(|input| input.value()).unwrap_or_default();
    let close = move || {
        open.set(false);
        typed.set(String::new());
    };
    let restore = move || {
        close();
        draft.set(None);
        leave();
    };
    let choose = move |name: &str| {
        page.commit_options(|options| gpu::set(options, name));
        if let Some(chosen) = chosen {
            chosen.run(name.to_owned());
        }
        restore();
    };
    let current = move || value.with_untracked(|value| gpu::position(value));
    let narrow = move |text: String| {
        typed.set(text.clone());
        open.set(true);
        refused.set(false);
        let is_empty = text.trim().is_empty();
        active.set(if is_empty { current() } else { list.with_untracked(|list| list.meant) });
        let kept = value.get_untracked();
        draft.set((text != kept).then(|| GpuDraft { meaning: list.with_untracked(List::meaning), current: kept }));
    };
    let show = move || {
        if draft.with_untracked(Option::is_some) {
            return narrow(text());
        }
        active.set(current());
        open.set(true);
    };
    // `is_left` if the field loses the focus.
    let accept = move |is_left: bool| {
        let is_empty = text().trim().is_empty();
        let draft = draft.get_untracked();
        // An unchanged or empty field without a row that the arrow keys reached keeps its GPU.
        let row = active
            .get_untracked()
            .filter(|at| open.get_untracked() && (draft.is_some() && !is_empty || Some(*at) != current()));
        match (row.and_then(|at| list.with_untracked(|list| list.value(at))), draft) {
            (Some(name), _) => choose(&name),
            (None, Some(draft)) if !is_empty || !gpu::is_known(&draft.current) => {
                if is_left {
                    close();
                } else {
                    narrow(text());
                }
                refused.set(!is_empty);
            }
            (None, _) => restore(),
        }
    };
    let fault = move || match draft.get() {
        Some(GpuDraft { meaning: Meaning::Unknown, .. }) => Some(t(text::NO_CARD_MATCHES).to_owned()),
        Some(_) => refused.get().then(|| t(text::SEVERAL_GPUS_MATCH).to_owned()),
        None => unknown.get(),
    };
    let has_no_rows = move || open.get() && list.with(|list| list.len() == 0);
    let key = move |event: KeyboardEvent| {
        let last = list.with_untracked(List::len).saturating_sub(1);
        match event.key().as_str() {
            "ArrowDown" | "ArrowUp" if !open.get_untracked() => show(),
            "ArrowDown" => active.update(|at| *at = Some(at.map_or(0, |at| (at + 1).min(last)))),
            "ArrowUp" => active.update(|at| *at = Some(at.map_or(0, |at| at.saturating_sub(1)))),
            "Enter" => accept(false),
            "Escape" => restore(),
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
                    aria-invalid=some_words(move || fault().map(|_| "true".to_owned()))
                    aria-describedby=some_words(move || fault().map(|_| "gpu-fault".to_owned()))
                    on:focus:target=move |event| event.target().select()
                    on:click=move |_| if !open.get_untracked() { show() }
                    on:input:target=move |event| narrow(event.target().value())
                    on:keydown=key
                    on:blur=move |_| accept(true) />
                <span class="combobox__memory" title=some_words(move || memory.get().map(|(_, exact)| exact))>
                    {some_words(move || memory.get().filter(|_| draft.with(Option::is_none)).map(|(size, _)| size))}
                </span>
            </div>
            // A list without rows shows the same text.
            <span class="combobox__fault" class:visually-hidden=flag(has_no_rows) id="gpu-fault" data-testid="gpu-fault" role="status">{some_words(fault)}</span>
            <div class="combobox__list" id="gpu-list" role="listbox" aria-label=t(text::GPU)
                class:combobox__list--open=flag(move || open.get())>
                {part(move || rows(&list.get(), active, Callback::new(move |name: String| choose(&name))))}
            </div>
        </div>
    }
}

fn rows(list: &List, active: RwSignal<Option<usize>>, choose: Callback<String>) -> impl IntoView + use<> {
    let row = move |index: usize, value: String, label: String, sizes: String| {
        view! {
            <div class="combobox__choice" role="option" id=format!("gpu-{index}")
                aria-selected=words(move || (active.get() == Some(index)).to_string())
                // The pointer event comes before the blur that a click would cause.
                on:pointerdown=move |event| { event.prevent_default(); choose.run(value.clone()); }>
                <span>{label}</span>
                <span class="combobox__size">{sizes}</span>
            </div>
        }
        .into_part()
    };
    let mut rows: Vec<Part> = Vec::new();
    let mut start = 0;
    for group in list.choices.chunk_by(|one, next| one.segment == next.segment) {
        let heading = t(gpu::heading(group[0].segment));
        let choices: Vec<_> = group
            .iter()
            .enumerate()
            .map(|(index, choice)| {
                let sizes = match (choice.segment, choice.n_gpus) {
                    (Some(_), _) => format!("{} GB · {}", choice.nominal_gb, choice.total),
                    (None, 1) => format!("{} · {}", choice.name, choice.total),
                    (None, n) => say(&text::gpu_of_several(n, choice.name)),
                };
                row(start + index, choice.name.to_owned(), choice.label.to_owned(), sizes)
            })
            .collect();
        start += group.len();
        rows.push(
            view! {
                <div role="group" aria-label=heading>
                    <span class="combobox__group" aria-hidden="true">{heading}</span>
                    {choices}
                </div>
            }
            .into_part(),
        );
    }
    if let Some(size) = &list.size {
        rows.push(row(list.choices.len(), size.clone(), say(&text::gpu_of_size(size.as_str())), String::new()));
    }
    if rows.is_empty() {
        let none = t(text::NO_CARD_MATCHES);
        rows.push(
            view! { <div class="combobox__none" role="option" aria-disabled="true" aria-selected="false">{none}</div> }
                .into_part(),
        );
    }
    rows
}

/// Scrolls the active row into view after it is drawn.
fn scroll_to_choice(index: usize) {
    request_animation_frame(move || {
        if let Some(choice) = document().get_element_by_id(&format!("gpu-{index}")) {
            let into_view = web_sys::ScrollIntoViewOptions::new();
            into_view.set_block(web_sys::ScrollLogicalPosition::Nearest);
            choice.scroll_into_view_with_scroll_into_view_options(&into_view);
        }
    });
}
