//! The page that generates the HTML to embed the calculator, with a preview.

use std::time::Duration;

use leptos::{html::Div, prelude::*};

use crate::{
    browser,
    components::{
        actions::CopyButton, dynamic::words, field::Choice, gpu_picker::GpuPicker, header::Header, long_text::LongText,
        notice::Notice,
    },
    pages::address,
    state::{
        answer::describes_run,
        budget::Budget,
        memo::memo,
        snippet::{ELEMENT, SCRIPT, Snippet},
    },
    text::{self, LANGUAGES, t},
};

/// Delay after typing before the preview is updated.
const PREVIEW_DELAY: Duration = Duration::from_millis(300);

/// The page that generates the HTML.
#[component]
pub fn SnippetPage(
    /// The run, with its GPU.
    budget: Budget,
) -> impl IntoView {
    let now = browser::language();
    let language = LANGUAGES.iter().position(|language| language.code == now).unwrap_or(0);
    let (theme, language) = (RwSignal::new(0), RwSignal::new(language));
    let snippet = memo(move || {
        let (theme, language) = (text::EMBED_THEMES[theme.get()].0, LANGUAGES[language.get()].code);
        budget.answer.with(|answer| {
            let options = budget.session.with(|session| session.options.clone());
            Snippet::of(&answer.0, &options, language, theme, &browser::folder())
        })
    });
    let leave = Callback::new(move |()| address::write(budget));
    let local = browser::is_local().then(|| view! { <p class="embed__local">{t(text::EMBED_LOCAL)}</p> });
    view! {
        <Header page=6 leave />
        <Notice notice=budget.notice />
        <main class="embed">
            <section class="panel embed__given" aria-labelledby="embed-title">
                <h1 class="embed__title" id="embed-title">{t(text::EMBED_TITLE)}</h1>
                <p>{t(text::EMBED_LEAD)}</p>
                <label class="field__label" for="config">{t(text::EMBED_CONFIG)}</label>
                <LongText id="config" class="input embed__text" rows="6" replaces=describes_run placeholder=t(text::EMBED_CONFIG_PLACEHOLDER)
                    value=Signal::derive(move || budget.session.with(|session| session.text.clone()))
                    on_change=move |text: String| budget.type_text(text) on_paste=move |text: String| budget.take_text(text) />
                <GpuPicker page=budget chosen=|name: String| browser::keep_gpu(&name) />
                <div class="embed__choices">
                    <Choice id="theme" label=t(text::THEME) hint=t(text::EMBED_THEME_HINT) choices=text::EMBED_THEMES.map(|(_, key)| t(key)).to_vec()
                        chosen=Signal::derive(move || Some(theme.get())) on_choose=move |index| theme.set(index) />
                    <Choice id="embed-language" label=t(text::LANGUAGE) hint=t(text::EMBED_LANGUAGE_HINT) choices=LANGUAGES.map(|language| language.name).to_vec()
                        chosen=Signal::derive(move || Some(language.get())) on_choose=move |index| language.set(index) />
                </div>
                <p class="embed__soft">{t(text::EMBED_PROMISE)}</p>
            </section>
            <div class="embed__answer" id="answer" tabindex="-1">
                <section class="panel" aria-labelledby="snippet-title">
                    <h2 class="panel-title embed__head">
                        <span id="snippet-title">{t(text::EMBED_SNIPPET)}</span>
                        <CopyButton id="copy-snippet" label=t(text::COPY_SNIPPET) primary=true
                            content=move |()| Some(snippet.with(Snippet::html)) />
                    </h2>
                    <pre class="embed__lines" tabindex="0" aria-labelledby="snippet-title"><code id="snippet" data-testid="snippet">
                        {words(move || snippet.with(Snippet::html))}
                    </code></pre>
                    {local}
                </section>
                <section aria-labelledby="preview-title">
                    <h2 class="panel-title embed__over" id="preview-title">{t(text::EMBED_PREVIEW)}</h2>
                    <Preview snippet />
                </section>
                <section class="panel" aria-labelledby="how-title">
                    <h2 class="panel-title" id="how-title">{t(text::EMBED_HOW)}</h2>
                    <dl class="embed__how">
                        {text::EMBED_HOSTS.map(|(name, how)| view! { <dt>{name}</dt> <dd>{t(how)}</dd> }).collect_view()}
                    </dl>
                    <p class="embed__soft">{t(text::EMBED_HOW_ONCE)} " " {t(text::EMBED_POLICY)}</p>
                </section>
            </div>
        </main>
    }
}

/// The preview, which uses the same element and script as the generated HTML.
#[component]
fn Preview(snippet: Memo<Snippet>) -> impl IntoView {
    let place = NodeRef::<Div>::new();
    browser::add_script(SCRIPT);
    let pending = StoredValue::new(None::<TimeoutHandle>);
    Effect::new(move |was_there: Option<bool>| {
        let snippet = snippet.get();
        let Some(place) = place.get() else { return false };
        let show = move || browser::show_element(&place, ELEMENT, &snippet.attributes);
        if was_there == Some(true) {
            if let Some(pending) = pending.get_value() {
                pending.clear();
            }
            pending.set_value(set_timeout_with_handle(show, PREVIEW_DELAY).ok());
        } else {
            show();
        }
        true
    });
    view! { <div id="preview" node_ref=place></div> }
}
