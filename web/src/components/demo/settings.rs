//! The prompt, the settings for generation, and the start button.

use leptos::{ev::KeyboardEvent, prelude::*};

use super::DemoContext;
use crate::{
    browser,
    components::{
        dynamic::{flag, some_words, words},
        field::TextField,
        long_text::LongText,
    },
    state::{
        demo::{Settings, Stage},
        memo::memo,
    },
    text::{self, Key, say, t},
};

/// A number field: its id, label and hint, a function that shows it, and one that parses it.
type Number = (&'static str, Key, Key, fn(&Settings) -> String, fn(&mut Settings, &str) -> Option<Key>);

const NUMBERS: [Number; 4] = [
    (
        "temperature",
        text::DEMO_TEMPERATURE,
        text::DEMO_TEMPERATURE_HINT,
        |settings| text::table().number(&settings.temperature.to_string()),
        Settings::take_temperature,
    ),
    ("top-k", text::DEMO_TOP_K, text::DEMO_TOP_K_HINT, |settings| settings.top_k.to_string(), Settings::take_top_k),
    ("seed", text::DEMO_SEED, text::DEMO_SEED_HINT, |settings| settings.seed.to_string(), Settings::take_seed),
    (
        "n-tokens",
        text::DEMO_N_TOKENS,
        text::DEMO_N_TOKENS_HINT,
        |settings| settings.n_tokens.to_string(),
        Settings::take_n_tokens,
    ),
];

/// The form for the prompt and the settings.
#[component]
pub fn PromptForm(
    /// The demo's state.
    desk: DemoContext,
) -> impl IntoView {
    let is_writing = memo(move || desk.demo.with(|demo| demo.stage == Stage::Writing));
    let refused = move || desk.refused().map(|text| say(&text));
    let enter = move |event: KeyboardEvent| {
        if event.key() == "Enter" && (event.ctrl_key() || event.meta_key()) {
            event.prevent_default();
            desk.write();
        }
    };
    view! {
        <form class="panel demo__form" autocomplete="off" aria-label=t(text::DEMO_PROMPT_LABEL) on:keydown=enter
            on:submit=move |event| { event.prevent_default(); desk.write(); }>
            <label for="prompt" class="panel-title">{t(text::DEMO_PROMPT_LABEL)}</label>
            <LongText id="prompt" class="input demo__prompt" rows="3" value=desk.prompt
                invalid=Signal::derive(move || refused().is_some()) described_by="prompt-fault"
                on_change=move |prompt: String| {
                    desk.prompt.set(prompt);
                    desk.demo.update(|demo| demo.refused = None);
                } />
            <p class="demo__fault" id="prompt-fault" data-testid="prompt-fault" role="alert">{some_words(refused)}</p>
            <div class="demo__numbers">
                {NUMBERS.into_iter().map(|(id, label, hint, shown, take)| view! {
                    <TextField id faults=desk.faults label=t(label) hint=t(hint)
                        value=Signal::derive(move || desk.settings.with(shown))
                        take=Callback::new(move |typed: String| {
                            let mut settings = desk.settings.get_untracked();
                            let fault = take(&mut settings, &typed);
                            // A field that is set again clears its error.
                            if fault.is_none() {
                                desk.settings.set(settings);
                            }
                            fault
                        }) />
                }).collect_view()}
            </div>
            <div class="demo__buttons">
                // One button starts and stops, so that it keeps the keyboard focus.
                <button type="button" class="button demo__go" class=("button--primary", move || !is_writing.get()) id="write"
                    title="Ctrl+Enter" prop:disabled=flag(move || !is_writing.get() && !desk.can_write())
                    on:click=move |_| if is_writing.get_untracked() { desk.stop() } else { desk.write() }>
                    {words(move || t(if is_writing.get() { text::DEMO_STOP } else { text::DEMO_WRITE }).to_owned())}</button>
                <label class="toggle" title=t(text::DEMO_SLOWLY_HINT)>
                    <input type="checkbox" id="slowly" prop:checked=flag(move || desk.settings.with(|settings| settings.slowly))
                        on:change:target=move |event| desk.set_slowly(event.target().checked()) />
                    <span>{t(text::DEMO_SLOWLY)}</span>
                </label>
            </div>
        </form>
    }
}

/// Returns a callback that keeps the settings for the page in another language.
pub fn leave(desk: DemoContext) -> Callback<()> {
    Callback::new(move |()| browser::keep(browser::DEMO, &desk.kept().text()))
}
