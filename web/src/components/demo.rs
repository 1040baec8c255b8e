//! The parts of the demo's page, and what they have in common: the worker's state, and what can be asked of it.

pub mod attention;
pub mod candidates;
pub mod memory;
pub mod model;
pub mod settings;
pub mod written;

use headroom_shared::{
    demo::{Ask, Failure, FailureKind, Head, Opened, Source, Tell, Way, Write},
    text::Text,
};
use leptos::prelude::*;

use crate::{
    browser::{self, worker},
    state::demo::{Demo, Kept, Settings, Stage, WayOn},
    text,
};

/// The demo: what is shown, what is set, and the worker behind it.
#[derive(Clone, Copy)]
pub struct Desk {
    /// What the worker told.
    pub demo: RwSignal<Demo>,
    /// How a text is to be written.
    pub settings: RwSignal<Settings>,
    /// How it begins.
    pub prompt: RwSignal<String>,
    /// The token that is pointed at, and the one that stays chosen.
    pub pointed: RwSignal<Option<usize>>,
    /// See there.
    pub chosen: RwSignal<Option<usize>>,
    /// The head of the map.
    pub head: RwSignal<Head>,
    /// The way that a person chose.
    pub way: RwSignal<Option<Way>>,
    /// The GPU's memory, where a person said it.
    pub gpu_bytes: RwSignal<Option<u64>>,
    /// Whether the model is a person's.
    pub has_files: RwSignal<bool>,
    /// Why chosen files were not opened, while the model that was there stays.
    pub rejected: RwSignal<Option<Failure>>,
    /// The name of a person's model that was open in another language; empty where there was none.
    pub left_behind: RwSignal<String>,
}

impl Desk {
    /// A demo at its start.
    pub fn new() -> Self {
        let first = || Kept { prompt: text::DEMO_PROMPT.to_owned(), ..Kept::default() };
        let kept = browser::kept_demo().and_then(|kept| Kept::of_text(&kept)).unwrap_or_else(first);
        Self {
            demo: RwSignal::new(Demo::default()),
            settings: RwSignal::new(kept.settings),
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

    /// What a page in another language begins with.
    pub fn kept(self) -> Kept {
        let name = self.demo.with_untracked(|demo| demo.opened.as_ref().map(|opened| opened.name.clone()));
        let file = match self.has_files.get_untracked() {
            true => name.unwrap_or_else(worker::first_name),
            // Nobody has opened it again yet.
            false => self.left_behind.get_untracked(),
        };
        Kept {
            settings: self.settings.get_untracked(),
            way: self.way.get_untracked(),
            gpu_bytes: self.gpu_bytes.get_untracked(),
            file,
            prompt: self.prompt.get_untracked(),
        }
    }

    /// Opens the model that ships, when the page is opened.
    pub fn open(self) {
        self.begin(false);
        browser::bring_in_sight("answer");
    }

    /// Opens the chosen files. A model that can write stays, with its text, until they turn out to be another.
    pub fn open_chosen(self) {
        self.rejected.set(None);
        if !self.has_model() {
            worker::take_chosen();
            self.way.set(None);
            return self.open();
        }
        worker::begin_beside(move |told| self.hear_candidate(told));
        worker::ask_candidate(&Ask::Open {
            source: Source::Files,
            way: None,
            gpu_bytes: self.gpu_bytes.get_untracked(),
        });
    }

    fn has_model(self) -> bool {
        self.demo.with_untracked(|demo| matches!(demo.stage, Stage::Ready | Stage::Writing))
    }

    /// Takes what a candidate tells until it has replaced the worker, and what that worker tells from then on.
    fn hear_candidate(self, told: Result<Tell, String>) {
        match &told {
            Ok(Tell::Opened(_)) if worker::replace() => {
                self.way.set(None);
                self.forget_model(None);
            }
            Ok(Tell::Failed(failure)) if worker::is_candidate() => return self.reject(failure.clone()),
            Err(reason) if worker::is_candidate() => {
                let text = text::demo_worker_died(reason.as_str());
                return self.reject(Failure { kind: FailureKind::Device, text, hint: None });
            }
            _ => {}
        }
        self.hear(told);
    }

    /// Keeps the model that is open, where there is one, and says what is wrong with the chosen files.
    pub fn reject(self, failure: Failure) {
        worker::reject();
        if self.has_model() {
            self.rejected.set(Some(failure));
        } else {
            self.demo.update(|demo| demo.fail(failure));
        }
        browser::bring_in_sight("answer");
    }

    /// Opens the same model in another way.
    pub fn open_again(self) {
        self.begin(true);
    }

    /// Opens the model that is chosen, in a worker of its own.
    fn begin(self, is_same: bool) {
        // What is known of the model stays in sight until it is known anew.
        let opened = self.demo.with_untracked(|demo| demo.opened.clone()).filter(|_| is_same);
        self.rejected.set(None);
        self.forget_model(opened);
        worker::begin(move |told| self.hear(told));
        let source = if worker::has_files() { Source::Files } else { Source::Shipped(worker::beside(worker::MODEL)) };
        let (way, gpu_bytes) = (self.way.get_untracked(), self.gpu_bytes.get_untracked());
        worker::ask(&Ask::Open { source, way, gpu_bytes });
    }

    /// Shows nothing of the model before but what `opened` says.
    fn forget_model(self, opened: Option<Opened>) {
        self.demo.set(Demo { opened, ..Demo::default() });
        self.chosen.set(None);
        self.pointed.set(None);
        self.head.set(Head::default());
        self.has_files.set(worker::has_files());
        if worker::has_files() {
            self.left_behind.set(String::new());
        }
    }

    fn hear(self, told: Result<Tell, String>) {
        self.demo.update(|demo| match told {
            Ok(tell) => demo.hear(tell),
            Err(reason) => {
                let text = text::demo_worker_died(reason);
                demo.fail(Failure { kind: FailureKind::Device, text, hint: None });
            }
        });
        // Whoever pressed something at the other end of a phone's page wants to know.
        if self.demo.with_untracked(|demo| matches!(demo.stage, Stage::Failed(_))) {
            browser::bring_in_sight("answer");
        }
    }

    /// Takes a way on from a failure.
    pub fn go_on(self, way: WayOn) {
        let is_same = way != WayOn::Shipped;
        match way {
            WayOn::Again => {}
            WayOn::OnCpu => self.way.set(Some(Way::Cpu)),
            WayOn::Best => self.way.set(None),
            WayOn::Shipped => {
                worker::forget();
                self.way.set(None);
            }
        }
        self.begin(is_same);
    }

    /// Lets the model write.
    pub fn write(self) {
        if !self.can_write() {
            return;
        }
        self.chosen.set(None);
        self.pointed.set(None);
        let settings = self.settings.get_untracked();
        let Settings { temperature, top_k, seed, n_tokens, .. } = settings;
        // At once: a second press would begin it again.
        self.demo.update(|demo| (demo.stage, demo.end) = (Stage::Writing, None));
        worker::ask(&Ask::Write(Write {
            prompt: self.prompt.get_untracked(),
            temperature,
            top_k,
            seed,
            n_tokens,
            pause_millis: settings.pause_millis(),
            head: self.head.get_untracked(),
        }));
    }

    /// Whether there is a model that waits.
    pub fn can_write(self) -> bool {
        self.demo.with(|demo| demo.stage == Stage::Ready)
    }

    /// Ends a text, or the loading of a model.
    pub fn stop(self) {
        worker::ask(&Ask::Stop);
    }

    /// Takes another pace, also for a text that is being written.
    pub fn set_slowly(self, slowly: bool) {
        self.settings.update(|settings| settings.slowly = slowly);
        if self.demo.with_untracked(|demo| demo.stage == Stage::Writing) {
            worker::ask(&Ask::Pace(self.settings.with_untracked(Settings::pause_millis)));
        }
    }

    /// Asks for another map.
    pub fn look(self, head: Head) {
        self.head.set(head);
        if self.demo.with_untracked(|demo| !demo.pieces.is_empty()) {
            worker::ask(&Ask::Attention(head));
        }
    }

    /// What is wrong with the prompt.
    pub fn refused(self) -> Option<Text> {
        self.demo.with(|demo| demo.refused.as_ref().map(|failure| failure.text.clone()))
    }
}
