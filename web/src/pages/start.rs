//! The start page: one field that takes any text about a run and opens the page that answers it.

use headroom_planner::session::Options;
use headroom_text::Text;
use leptos::prelude::*;
use web_sys::{DragEvent, File, KeyboardEvent};

use crate::{
    browser,
    components::{
        dynamic::{act, part_of},
        gpu_picker::GpuPicker,
        header::{self, Header},
        long_text::LongText,
        notice::Notice,
        open_file::read_file,
    },
    state::{
        entry::Faults,
        gpu::{self, GpuDraft, OnGpu},
        memo::memo,
        recognized::{Carried, Destination, Page, Recognized, recognize},
    },
    text::{self, Key, say, t},
};

/// Runs to start from: a label, the page and the fragment.
const EXAMPLES: [(Key, Page, &str); 4] = [
    (text::START_TRY_GPT2, Page::Calculator, ""),
    (text::START_TRY_NANOCHAT, Page::Trainers, "1&trainer=nanochat"),
    (text::START_TRY_LORA, Page::Trainers, "1&trainer=hf"),
    (text::START_TRY_GPUS, Page::Gpus, ""),
];

/// The page's state.
#[derive(Clone, Copy)]
struct Start {
    typed: RwSignal<String>,
    /// The GPU, and the memory that other processes use on it.
    options: RwSignal<Options>,
    draft: RwSignal<Option<GpuDraft>>,
    faults: Faults,
    recognized: Memo<Option<Recognized>>,
    notice: RwSignal<Option<Text>>,
}

impl Start {
    fn new() -> Self {
        let mut options = Options::default();
        if let Some(name) = browser::kept_gpu().filter(|name| gpu::is_known(name)) {
            gpu::set(&mut options, &name);
        }
        let options = RwSignal::new(options);
        // The text of the history entry, or that of the page in another language.
        let kept = browser::take_kept(browser::START);
        let typed = RwSignal::new(browser::entry_state().or(kept).unwrap_or_default());
        let recognized = memo(move || options.with(|options| typed.with(|typed| recognize(typed, options))));
        let (draft, notice) = (RwSignal::new(None), RwSignal::new(None));
        Self { typed, options, draft, faults: Faults::default(), recognized, notice }
    }

    /// Takes a pasted text or a file, and opens the page that answers it. Several pages are offered.
    fn take(self, text: String) {
        self.typed.set(text);
        let recognized = self.recognized.get_untracked();
        if let Some(only) = recognized.as_ref().and_then(Recognized::only) {
            self.open(only);
        }
    }

    /// Opens the best page for the text.
    fn open_best(self) {
        let recognized = self.recognized.get_untracked();
        if let Some(best) = recognized.as_ref().and_then(|found| found.destinations.first()) {
            self.open(best);
        }
    }

    /// Passes the text on and opens a page. Back returns to the text.
    fn open(self, to: &Destination) {
        self.keep();
        browser::forget_message();
        match &to.carried {
            Carried::Nothing => {}
            Carried::Run(text) => browser::keep_text(&to.fragment, text),
            Carried::Message => self.typed.with_untracked(|text| browser::keep_message(text, "")),
        }
        browser::go_to(&browser::page_with(to.page.file(), &to.fragment));
    }

    /// Stores the text in the history entry.
    fn keep(self) {
        self.typed.with_untracked(|text| {
            browser::keep(browser::START, text);
            browser::replace_entry("", text);
        });
    }
}

impl OnGpu for Start {
    fn options(self) -> Options {
        self.options.get()
    }

    fn edit_options(self, change: impl FnOnce(&mut Options)) {
        self.options.update(change);
    }

    fn commit_options(self, change: impl FnOnce(&mut Options)) {
        self.options.update(change);
    }

    fn draft(self) -> RwSignal<Option<GpuDraft>> {
        self.draft
    }

    fn faults(self) -> Faults {
        self.faults
    }

    fn gpu_bytes(self) -> Option<u64> {
        self.options.with(|options| Some(options.machine().ok()?.device.total_bytes))
    }

    fn gpu_fault(self) -> Option<Text> {
        self.options.with(|options| Some(options.machine().err()?.message))
    }
}

/// The start page.
#[component]
pub fn StartPage() -> impl IntoView {
    let start = Start::new();
    let leave = Callback::new(move |()| start.keep());
    let take_file = move |file: Option<File>| {
        read_file(file, move |_, read| match read {
            Ok(text) => start.take(text),
            Err(reason) => start.notice.set(Some(reason)),
        });
    };
    browser::on_drag("dragover", move |event: DragEvent| {
        if browser::has_files(&event) {
            event.prevent_default();
        }
    });
    browser::on_drag("drop", move |event: DragEvent| {
        let file = event.data_transfer().and_then(|data| data.files()).and_then(|files| files.get(0));
        if file.is_some() {
            event.prevent_default();
            take_file(file);
        }
    });
    // Enter opens a text of one line; in a longer one it starts a line, and Ctrl+Enter opens.
    let key = move |event: KeyboardEvent| {
        let is_line = || start.typed.with_untracked(|text| !text.contains('\n')) && !event.shift_key();
        if event.key() == "Enter" && (event.ctrl_key() || event.meta_key() || is_line()) {
            event.prevent_default();
            start.open_best();
        }
    };
    view! {
        <Header page=header::START leave />
        <Notice notice=start.notice />
        <main class="start">
            <section class="start__ask" aria-labelledby="start-title">
                <h1 class="start__title" id="start-title">{t(text::START_TITLE)}</h1>
                <p class="start__lead">{t(text::START_LEAD)}</p>
                <div class="start__box" on:keydown=key>
                    <label class="start__label" for="anything">{t(text::START_LABEL)}</label>
                    <LongText id="anything" class="input start__text" rows="7" replaces=|_| true placeholder=t(text::START_PLACEHOLDER)
                        described_by="recognized" value=start.typed
                        on_change=move |text: String| start.typed.set(text) on_paste=move |text: String| start.take(text) />
                    <label class="button start__file">
                        <input type="file" id="start-file" class="visually-hidden" accept=".py,.txt,.log,.sh,.json,.headroom"
                            on:change:target=move |event| {
                                take_file(event.target().files().and_then(|files| files.get(0)));
                                event.target().set_value("");
                            } />
                        <span>{t(text::OPEN_FILE)}</span>
                    </label>
                </div>
            </section>
            <section class="start__found" id="answer" tabindex="-1" aria-label=t(text::START_FOUND) aria-live="polite">
                <div id="recognized">{part_of(move || start.recognized.get(), move |found| part_recognized(start, found))}</div>
            </section>
            <section class="start__gpu" aria-label=t(text::GPU)>
                <GpuPicker page=start chosen=|name: String| browser::keep_gpu(&name) />
            </section>
            <Examples start />
            <section class="start__recent" id="recent-runs" aria-labelledby="recent-title" data-clear=t(text::CLEAR_RECENT) hidden=true>
                <h2 class="panel-title" id="recent-title">{t(text::RECENT)}</h2>
            </section>
        </main>
    }
}

/// What the text is, with a button for each page that answers it.
fn part_recognized(start: Start, found: Option<Recognized>) -> AnyView {
    let Some(found) = found else {
        return view! { <p class="start__accepts">{t(text::START_ACCEPTS)}</p> }.into_any();
    };
    let outcome = if found.destinations.is_empty() { "none" } else { "known" };
    let buttons: Vec<_> = found.destinations.into_iter().enumerate().map(|(index, to)| {
        let class = if index == 0 { "button button--primary" } else { "button" };
        let label = t(to.label);
        view! { <button type="button" class=class data-testid="open" on:click=act(move || start.open(&to))>{label}</button> }
    }).collect();
    view! {
        <div class="panel start__recognized" data-testid="recognized" data-outcome=outcome>
            <p class="start__what">{say(&found.what)}</p>
            {found.detail.map(|detail| view! { <p class="start__detail">{say(&detail)}</p> })}
            {(!buttons.is_empty()).then(|| view! { <p class="start__open">{buttons}</p> })}
        </div>
    }
    .into_any()
}

/// Runs to start from, for visitors without a text.
#[component]
fn Examples(start: Start) -> impl IntoView {
    let links = EXAMPLES.map(|(label, page, fragment)| {
        view! { <li><a class="button" href=browser::page_with(page.file(), fragment) on:click=act(move || start.keep())>{t(label)}</a></li> }
    });
    let message = act(move || start.take(text::EXAMPLE_MESSAGE.to_owned()));
    view! {
        <section class="start__examples" aria-labelledby="examples-title">
            <h2 class="panel-title" id="examples-title">{t(text::START_EXAMPLES)}</h2>
            <ul class="start__list">
                <li><button type="button" class="button" id="try-message" on:click=message>{t(text::START_TRY_MESSAGE)}</button></li>
                {links.collect_view()}
            </ul>
        </section>
    }
}
