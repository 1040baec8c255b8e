//! Components of the demo page, and what they share: the worker's state and the actions on it.

pub mod attention;
pub mod candidates;
pub mod memory;
pub mod model;
pub mod settings;
pub mod written;

use headroom_protocol::demo::{
    DemoBackend, Failure, FailureKind, GenerationRequest, ModelPlans, Source, WorkerRequest, WorkerResponse,
};
use headroom_text::Text;
use leptos::prelude::*;

use crate::{
    browser::{self, worker},
    state::{
        demo::{Demo, Head, Settings, Stage, StoredSettings, WayOn},
        entry::Faults,
    },
    text,
};

/// The shared state of the demo page.
#[derive(Clone, Copy)]
pub struct DemoContext {
    /// The worker's state, from its messages.
    pub demo: RwSignal<Demo>,
    /// Settings for the next text.
    pub settings: RwSignal<Settings>,
    /// The invalid fields of the settings. While there is one, no text is generated.
    pub faults: Faults,
    /// The prompt.
    pub prompt: RwSignal<String>,
    /// Index of the token under the pointer.
    pub pointed: RwSignal<Option<usize>>,
    /// Index of the token that stays selected, whose attention is shown.
    pub chosen: RwSignal<Option<usize>>,
    /// The head whose attention is shown.
    pub head: RwSignal<Head>,
    /// The way to run the model that the user selected.
    pub way: RwSignal<Option<DemoBackend>>,
    /// The GPU's memory in bytes, if the user entered it.
    pub gpu_bytes: RwSignal<Option<u64>>,
    /// Whether the model comes from the user's files.
    pub has_files: RwSignal<bool>,
    /// Why selected files were not opened, while the previous model stays open.
    pub rejected: RwSignal<Option<Failure>>,
    /// The name of the user's model that was open in another language; empty if there was none.
    pub left_behind: RwSignal<String>,
}

impl DemoContext {
    /// Creates the initial state, with values kept from the page in another language.
    pub fn new() -> Self {
        let first = || StoredSettings { prompt: text::DEMO_PROMPT.to_owned(), ..StoredSettings::default() };
        let kept =
            browser::take_kept(browser::DEMO).and_then(|kept| StoredSettings::of_text(&kept)).unwrap_or_else(first);
        Self {
            demo: RwSignal::new(Demo::default()),
            settings: RwSignal::new(kept.settings),
            faults: Faults::default(),
            prompt: RwSignal::new(kept.prompt),
            pointed: RwSignal::new(None),
            chosen: RwSignal::new(None),
            head: RwSignal::new(Head::default()),
            way: RwSignal::new(kept.way),
            gpu_bytes: RwSignal::new(kept.gpu_bytes),
            has_files: RwSignal::new(false),
            rejected: RwSignal::new(None),
            left_behind: RwSignal::new(kept.file),
        }
    }

    /// Returns the values to keep for the page in another language.
    pub fn kept(self) -> StoredSettings {
        let name = self.demo.with_untracked(|demo| demo.opened.as_ref().map(|opened| opened.name.clone()));
        let file = match self.has_files.get_untracked() {
            true => name.unwrap_or_else(worker::first_name),
            // The user has not opened the model again yet.
            false => self.left_behind.get_untracked(),
        };
        StoredSettings {
            settings: self.settings.get_untracked(),
            way: self.way.get_untracked(),
            gpu_bytes: self.gpu_bytes.get_untracked(),
            file,
            prompt: self.prompt.get_untracked(),
        }
    }

    /// Opens the selected files, or the shipped model if there are none, and scrolls to the answer.
    pub fn open(self) {
        self.begin(false);
        browser::bring_in_sight("answer");
    }

    /// Opens the selected files. A working model stays with its text until the files prove to be another model.
    pub fn open_chosen(self) {
        self.rejected.set(None);
        if !self.has_model() {
            worker::take_chosen();
            self.way.set(None);
            return self.open();
        }
        worker::begin_beside(move |message| self.hear_candidate(message));
        worker::ask_candidate(&WorkerRequest::Open {
            source: Source::Files,
            way: None,
            gpu_bytes: self.gpu_bytes.get_untracked(),
        });
    }

    fn has_model(self) -> bool {
        self.demo.with_untracked(|demo| matches!(demo.stage, Stage::Ready | Stage::Writing))
    }

    /// Processes the messages of a candidate until it replaces the worker, and that worker's messages afterwards.
    fn hear_candidate(self, message: Result<WorkerResponse, String>) {
        match &message {
            Ok(WorkerResponse::Opened(_)) if worker::replace() => {
                self.way.set(None);
                self.forget_model(None);
            }
            Ok(WorkerResponse::Failed(failure)) if worker::is_candidate() => return self.reject(failure.clone()),
            Err(reason) if worker::is_candidate() => {
                let text = text::demo_worker_died(reason.as_str());
                return self.reject(Failure { kind: FailureKind::Device, text, hint: None });
            }
            _ => {}
        }
        self.hear(message);
    }

    /// Reports a problem with the selected files. An open model stays open.
    pub fn reject(self, failure: Failure) {
        worker::reject();
        if self.has_model() {
            self.rejected.set(Some(failure));
        } else {
            self.demo.update(|demo| demo.fail(failure));
        }
        browser::bring_in_sight("answer");
    }

    /// Reopens the same model in another way.
    pub fn open_again(self) {
        self.begin(true);
    }

    /// Opens the selected model in a new worker.
    fn begin(self, is_same: bool) {
        // The known facts about the same model stay visible until they are updated.
        let opened = self.demo.with_untracked(|demo| demo.opened.clone()).filter(|_| is_same);
        self.rejected.set(None);
        self.forget_model(opened);
        worker::begin(move |message| self.hear(message));
        let source = if worker::has_files() { Source::Files } else { Source::Shipped(worker::beside(worker::MODEL)) };
        let (way, gpu_bytes) = (self.way.get_untracked(), self.gpu_bytes.get_untracked());
        worker::ask(&WorkerRequest::Open { source, way, gpu_bytes });
    }

    /// Resets the state of the previous model, except for `opened`.
    fn forget_model(self, opened: Option<ModelPlans>) {
        self.demo.set(Demo { opened, ..Demo::default() });
        self.chosen.set(None);
        self.pointed.set(None);
        self.head.set(Head::default());
        self.has_files.set(worker::has_files());
        if worker::has_files() {
            self.left_behind.set(String::new());
        }
    }

    fn hear(self, message: Result<WorkerResponse, String>) {
        self.demo.update(|demo| match message {
            Ok(tell) => demo.hear(tell),
            Err(reason) => {
                let text = text::demo_worker_died(reason);
                demo.fail(Failure { kind: FailureKind::Device, text, hint: None });
            }
        });
        // The failure is scrolled into view, because the button may be at the other end of a phone's page.
        if self.demo.with_untracked(|demo| matches!(demo.stage, Stage::Failed(_))) {
            browser::bring_in_sight("answer");
        }
    }

    /// Continues after a failure in the given way.
    pub fn go_on(self, way: WayOn) {
        let is_same = way != WayOn::Shipped;
        match way {
            WayOn::Again => {}
            WayOn::OnCpu => self.way.set(Some(DemoBackend::Cpu)),
            WayOn::Best => self.way.set(None),
            WayOn::Shipped => {
                worker::forget();
                self.way.set(None);
            }
        }
        self.begin(is_same);
    }

    /// Starts to generate a text.
    pub fn write(self) {
        if !self.can_write() {
            return;
        }
        self.chosen.set(None);
        self.pointed.set(None);
        let settings = self.settings.get_untracked();
        let Settings { temperature, top_k, seed, n_tokens, .. } = settings;
        // The stage changes immediately; otherwise a second click would start another text.
        self.demo.update(|demo| (demo.stage, demo.end) = (Stage::Writing, None));
        worker::ask(&WorkerRequest::Write(GenerationRequest {
            prompt: self.prompt.get_untracked(),
            temperature,
            top_k,
            seed,
            n_tokens,
            pause_millis: settings.pause_millis(),
            maps: true,
        }));
    }

    /// Reports whether a model is loaded and idle, and every setting is valid.
    pub fn can_write(self) -> bool {
        self.demo.with(|demo| demo.stage == Stage::Ready) && self.faults.first().is_none()
    }

    /// Stops the text or the loading of a model.
    pub fn stop(self) {
        worker::ask(&WorkerRequest::Stop);
    }

    /// Sets the pace, also for a text that is being generated.
    pub fn set_slowly(self, slowly: bool) {
        self.settings.update(|settings| settings.slowly = slowly);
        if self.demo.with_untracked(|demo| demo.stage == Stage::Writing) {
            worker::ask(&WorkerRequest::Pace(self.settings.with_untracked(Settings::pause_millis)));
        }
    }

    /// Selects a token and requests its attention; `None` deselects it.
    pub fn choose(self, token: Option<usize>) {
        self.chosen.set(token);
        if let Some(token) = token {
            worker::ask(&WorkerRequest::Attention(token as u64));
        }
    }

    /// Returns the problem with the prompt, if there is one.
    pub fn refused(self) -> Option<Text> {
        self.demo.with(|demo| demo.refused.as_ref().map(|failure| failure.text.clone()))
    }
}
