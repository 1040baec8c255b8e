//! A text area that stays quick with megabytes in it.
//!
//! A browser's own text area takes minutes to lay out a pasted file of that size. So a long text is taken from the
//! clipboard directly and kept whole outside the field, which shows its beginning and its end.

use js_sys::JsString;
use leptos::{ev, html::Textarea, prelude::*};
use web_sys::{DataTransfer, HtmlTextAreaElement};

use super::dynamic::{flag, part, some_words, words};
use crate::{
    browser,
    state::excerpt,
    text::{self, say, t},
};

/// The text area.
#[component]
pub fn LongText(
    /// The field's id, and the test's.
    id: &'static str,
    /// The field's class.
    class: &'static str,
    /// Lines that the field shows at first.
    rows: &'static str,
    /// Whether long lines stay whole.
    #[prop(optional)]
    no_wrap: bool,
    /// Shown where it is empty.
    placeholder: &'static str,
    /// The whole text.
    #[prop(into)]
    value: Signal<String>,
    /// Called with each new text.
    #[prop(into)]
    on_change: Callback<String>,
) -> impl IntoView {
    let area = NodeRef::<Textarea>::new();
    // Compared, so that a field whose long text is the same is not filled again.
    let shown = Memo::new(move |_| value.with(|text| excerpt::of(text)));
    let is_part = move || shown.with(|shown| shown.n_bytes.is_some());
    let take = move |data: Option<DataTransfer>, event: &web_sys::Event| {
        let Some(area) = area.get_untracked() else { return };
        let pasted = data.and_then(|data| data.get_data("text/plain").ok()).unwrap_or_default();
        // A part cannot be edited: whatever is pasted replaces it.
        if !pasted.is_empty() && (is_part() || excerpt::is_long(&pasted)) {
            event.prevent_default();
            let text = if is_part() { pasted } else { inserted(&area, &pasted) };
            on_change.run(text.replace("\r\n", "\n"));
        }
    };
    let clear = move |_| {
        on_change.run(String::new());
        browser::focus(id);
    };
    let note = move || {
        shown.with(|shown| shown.n_bytes.zip(Some(shown.n_lines))).map(|(bytes, lines)| {
            view! {
                <p class="long-text__note" data-testid=format!("{id}-long")>
                    <span>{say(&text::text_shown_in_part(text::size(bytes), text::count(lines)))}</span>
                    <button type="button" class="button" on:click=clear>{t(text::CLEAR)}</button>
                </p>
            }
        })
    };
    view! {
        <textarea class=class id=id data-testid=id rows=rows spellcheck="false" autocomplete="off" autocapitalize="off"
            wrap=no_wrap.then_some("off") placeholder=placeholder node_ref=area
            data-bytes=some_words(move || shown.with(|shown| shown.n_bytes.map(|bytes| bytes.to_string())))
            prop:readOnly=flag(is_part)
            prop:value=words(move || shown.with(|shown| shown.text.clone()))
            on:paste=move |event: ev::ClipboardEvent| take(event.clipboard_data(), &event)
            on:drop=move |event: ev::DragEvent| {
                if !browser::has_files(&event) {
                    take(event.data_transfer(), &event);
                }
            }
            on:input:target=move |event| {
                let area = event.target();
                let typed = area.value();
                on_change.run(typed.clone());
                // Where the new text is not what was typed, the field takes it at once and keeps the caret.
                let text = value.get_untracked();
                if text != typed && !is_part() {
                    let caret = area.selection_start().ok().flatten().unwrap_or_default();
                    let caret = excerpt::moved_caret(&typed, &text, caret);
                    area.set_value(&text);
                    let _ = area.set_selection_range(caret, caret);
                }
            }></textarea>
        {part(note)}
    }
}

/// The field's text with another in the place of the selection.
fn inserted(area: &HtmlTextAreaElement, pasted: &str) -> String {
    let value = JsString::from(area.value());
    let length = value.length();
    let start = area.selection_start().ok().flatten().unwrap_or(length);
    let end = area.selection_end().ok().flatten().unwrap_or(length);
    format!("{}{pasted}{}", String::from(value.slice(0, start)), String::from(value.slice(end, length)))
}
