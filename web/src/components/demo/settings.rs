//! The prompt, how it is gone on with, and the button.

use leptos::{ev::KeyboardEvent, prelude::*};

use super::Desk;
use crate::{
    browser,
    components::{
        dynamic::{flag, some_words, words},
        field::TextField,
    },
    state::demo::{Settings, Stage},
    text::{self, Key, say, t},
};

/// What a field shows, and how it takes what was typed.
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

/// The form.
#[component]
pub fn PromptForm(
    /// The demo.
    desk: Desk,
) -> impl IntoView {
    let is_writing = Memo::new(move |_| desk.demo.with(|demo| demo.stage == Stage::Writing));
    let refused = move || desk.refused().map(|text| say(&text));
    let enter = move |event: KeyboardEvent| {
        if event.key() == "Enter" && (event.ctrl_key() || event.meta_key()) {
            event.prevent_default();
            desk.write();
        }
    };
    view! {
        <form class="panel demo__form" autocomplete="off" aria-label=t(text::DEMO_PROMPT_LABEL)
            on:submit=move |event| { event.prevent_default(); desk.write(); }>
            <label for="prompt" class="panel-title">{t(text::DEMO_PROMPT_LABEL)}</label>
            <textarea class="input demo__prompt" id="prompt" data-testid="prompt" rows="3" spellcheck="false"
                autocapitalize="off" prop:value=words(move || desk.prompt.get())
                aria-invalid=some_words(move || refused().map(|_| "true".to_owned())) aria-describedby="prompt-fault"
                on:keydown=enter
                on:input:target=move |event| {
                    desk.prompt.set(event.target().value());
                    desk.demo.update(|demo| demo.refused = None);
                }></textarea>
            <p class="demo__fault" id="prompt-fault" data-testid="prompt-fault" role="alert">{some_words(refused)}</p>
            <div class="demo__numbers">
                {NUMBERS.into_iter().map(|(id, label, hint, shown, take)| view! {
                    <TextField id label=t(label) hint=t(hint)
                        value=Signal::derive(move || desk.settings.with(shown))
                        take=Callback::new(move |typed: String| {
                            let mut settings = desk.settings.get_untracked();
                            let fault = take(&mut settings, &typed);
                            // Set anew, a field forgets what it has to say.
                            if fault.is_none() {
                                desk.settings.set(settings);
                            }
                            fault
                        }) />
                }).collect_view()}
            </div>
            <div class="demo__buttons">
                // One button for both: whoever pressed it by a key is still in it.
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

/// Keeps what was set for the same page in another language.
pub fn leave(desk: Desk) -> Callback<()> {
    Callback::new(move |()| browser::keep_demo(&desk.kept().text()))
}
