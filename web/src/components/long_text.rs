//! A text area that stays responsive with megabytes of text.
//!
//! A browser's own text area takes minutes to lay out a pasted file of that size. A long text is therefore read
//! directly from the clipboard and kept outside the field. The field shows its beginning and its end.

use js_sys::JsString;
use leptos::{ev, html::Textarea, prelude::*};
use web_sys::{DataTransfer, HtmlTextAreaElement};

use super::dynamic::{act, flag, part, some_words, words};
use crate::{
    browser,
    state::{excerpt, memo::memo},
    text::{self, say, t},
};

/// A text area for long texts.
#[component]
pub fn LongText(
    /// Id of the field, also for tests.
    id: &'static str,
    /// CSS class of the field.
    class: &'static str,
    /// Initial height in lines.
    rows: &'static str,
    /// Whether long lines are not wrapped.
    #[prop(optional)]
    no_wrap: bool,
    /// Text shown while the field is empty.
    #[prop(optional)]
    placeholder: &'static str,
    /// Reports whether a pasted text replaces the field's text instead of being inserted.
    #[prop(default = |_| false)]
    replaces: fn(&str) -> bool,
    /// Whether the text has an error.
    #[prop(into, default = Signal::stored(false))]
    invalid: Signal<bool>,
    /// Id of the element that describes the error.
    #[prop(optional)]
    described_by: Option<&'static str>,
    /// The full text.
    #[prop(into)]
    value: Signal<String>,
    /// Called with each new text.
    #[prop(into)]
    on_change: Callback<String>,
    /// Called instead of `on_change` after a paste or a drop. A pasted text that describes a whole run replaces the
    /// existing text.
    #[prop(optional, into)]
    on_paste: Option<Callback<String>>,
) -> impl IntoView {
    let on_paste = on_paste.unwrap_or(on_change);
    let is_pasting = StoredValue::new(false);
    let area = NodeRef::<Textarea>::new();
    // The memo compares the texts, so that an unchanged long text is not set again.
    let shown = memo(move || value.with(|text| excerpt::of(text)));
    let is_part = move || shown.with(|shown| shown.n_bytes.is_some());
    let take = move |data: Option<DataTransfer>, event: &web_sys::Event| {
        let Some(area) = area.get_untracked() else { return };
        let pasted = data.and_then(|data| data.get_data("text/plain").ok()).unwrap_or_default();
        // An excerpt cannot be edited, so a pasted text replaces it.
        let replaces = is_part() || replaces(&pasted);
        if !pasted.is_empty() && (replaces || excerpt::is_long(&pasted)) {
            event.prevent_default();
            let text = if replaces { pasted } else { inserted(&area, &pasted) };
            on_paste.run(text.replace("\r\n", "\n"));
        } else {
            // The browser inserts the text and fires an input event.
            is_pasting.set_value(!pasted.is_empty());
        }
    };
    let clear = move || {
        on_change.run(String::new());
        browser::focus(id);
    };
    let note = move || {
        shown.with(|shown| shown.n_bytes.zip(Some(shown.n_lines))).map(|(bytes, lines)| {
            view! {
                <p class="long-text__note" data-testid=format!("{id}-long")>
                    <span>{say(&text::text_shown_in_part(text::size(bytes), text::count(lines)))}</span>
                    <button type="button" class="button" on:click=act(clear)>{t(text::CLEAR)}</button>
                </p>
            }
        })
    };
    view! {
        <textarea class=class id=id data-testid=id rows=rows spellcheck="false" autocomplete="off" autocapitalize="off"
            wrap=no_wrap.then_some("off") placeholder=placeholder node_ref=area aria-describedby=described_by
            aria-invalid=some_words(move || invalid.get().then(|| "true".to_owned()))
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
                let is_pasted = is_pasting.try_update_value(std::mem::take).unwrap_or_default();
                if is_pasted { on_paste } else { on_change }.run(typed.clone());
                // If the new text differs from the typed one, the field shows it immediately and keeps the caret.
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

/// Returns the field's text with the selection replaced by `pasted`.
fn inserted(area: &HtmlTextAreaElement, pasted: &str) -> String {
    let value = JsString::from(area.value());
    let length = value.length();
    let start = area.selection_start().ok().flatten().unwrap_or(length);
    let end = area.selection_end().ok().flatten().unwrap_or(length);
    format!("{}{pasted}{}", String::from(value.slice(0, start)), String::from(value.slice(end, length)))
}
