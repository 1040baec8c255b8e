//! The signals that the budget page's components share: the input, its result, and the shown moment.

use std::sync::Arc;

use headroom_planner::{
    link,
    nanogpt::{Format, recognize},
    session::Options,
};
use headroom_text::Text;
use leptos::prelude::*;

use super::{
    answer::{PlannedSession, Shared},
    entry::Faults,
    gpu::{GpuDraft, OnGpu},
    memo::memo,
    no_plan::NoPlan,
    session::{ConfigFile, LinkedSession, Session, with_pin},
    shown::ShownPlan,
    steps::Steps,
    verdict::Verdict,
};
use crate::text;

/// The signals of the page.
#[derive(Clone, Copy)]
pub struct Budget {
    /// The user's input. Only [`Budget::edit`] and [`Budget::commit`] change it.
    pub session: ReadSignal<Session>,
    write: WriteSignal<Session>,
    /// The number of changes that added an entry to the browser's history.
    pub n_steps: RwSignal<u32>,
    /// The steps that can be undone and redone.
    pub steps: RwSignal<Steps>,
    /// The number of texts and links that replaced the run.
    pub n_runs: RwSignal<u32>,
    /// The text in the GPU field while it is not a valid choice.
    pub draft: RwSignal<Option<GpuDraft>>,
    /// The fields of the form whose text is invalid.
    pub faults: Faults,
    /// The result of the session.
    pub answer: Memo<Shared>,
    /// The drawn plan.
    pub shown: ShownPlan,
    /// A notice about the parts of an opened link that were ignored.
    pub notice: RwSignal<Option<Text>>,
}

impl Budget {
    /// Creates the signals, starting with nanoGPT's default run.
    pub fn new() -> Self {
        let (session, write) = signal(Session::default());
        let answer = Memo::new(move |before: Option<&Shared>| {
            let before = before.map(|before| &*before.0);
            session.with(|session| Shared(Arc::new(PlannedSession::after(session, before))))
        });
        let faults = Faults::default();
        let draft = RwSignal::new(None);
        let is_entered = move || draft.with(Option::is_none) && faults.first().is_none();
        let shown = ShownPlan::new(
            move || answer.with(|answer| answer.0.drawn().cloned()),
            move || answer.with(|answer| answer.0.planned.is_err()) || !is_entered(),
            draft,
        );
        Self {
            session,
            write,
            n_steps: RwSignal::new(0),
            steps: RwSignal::new(Steps::default()),
            n_runs: RwSignal::new(0),
            draft,
            faults,
            answer,
            shown,
            notice: RwSignal::new(None),
        }
    }

    /// Changes the session while the user types or drags. The address follows, without a new history entry.
    pub fn edit(self, change: impl FnOnce(&mut Session)) {
        self.write.update(|session| {
            change(session);
            session.settle();
        });
    }

    /// Changes the session by a completed action. It adds a history entry, which Back undoes.
    pub fn commit(self, change: impl FnOnce(&mut Session)) {
        self.n_steps.update(|n| *n = n.wrapping_add(1));
        self.edit(change);
        self.faults.reset();
    }

    /// Takes a text typed into the config field.
    pub fn type_text(self, text: String) {
        if !self.opens_link(&text) {
            self.write.update(|session| session.type_text(text));
        }
    }

    /// Takes a pasted text. A link opens its run.
    pub fn take_text(self, text: String) {
        if !self.opens_link(&text) {
            self.replace_run(|session| session.replace_text(text));
        }
    }

    /// Takes a file that was opened or dropped.
    pub fn take_file(self, file: ConfigFile) {
        if !self.opens_link(&file.text) {
            self.replace_run(|session| session.open_file(file));
        }
    }

    fn replace_run(self, change: impl FnOnce(&mut Session)) {
        self.faults.clear();
        self.n_runs.update(|n| *n = n.wrapping_add(1));
        self.commit(change);
    }

    fn opens_link(self, text: &str) -> bool {
        let Some(Format::Link(fragment)) = recognize(text) else { return false };
        let Some(mut opened) = Session::open(&fragment, None) else { return false };
        if !opened.names_gpu {
            self.session.with_untracked(|session| {
                session.options.gpu.clone_into(&mut opened.session.options.gpu);
                opened.session.options.vram_bytes = session.options.vram_bytes;
            });
        }
        self.replace_run(|_| {});
        self.open(opened);
        true
    }

    /// Shows the run of a link, with a notice about the parts that were ignored.
    pub fn open(self, LinkedSession { mut session, unknown, later_version, pinned, .. }: LinkedSession) {
        session.set_options(|_| {});
        let left_out = later_version.is_some() || !unknown.is_empty();
        self.notice.set(left_out.then(|| text::left_out(&unknown, later_version)));
        self.show(session);
        self.shown.pinned.set(pinned);
    }

    /// Shows a session as it is.
    pub fn show(self, session: Session) {
        self.edit(|shown| *shown = session);
        self.shown.reset();
        self.draft.set(None);
        self.faults.clear();
    }

    /// Returns whether every field holds a valid value. Otherwise the session is that before the invalid one.
    pub fn is_entered(self) -> bool {
        self.draft.with(Option::is_none) && self.faults.first().is_none()
    }

    /// The verdict; `None` without a plan, or while a field is invalid.
    pub fn verdict(self) -> Memo<Option<Verdict>> {
        memo(move || match self.is_entered() {
            false => None,
            true => self.answer.with(|answer| Verdict::of_answer(&answer.0)),
        })
    }

    /// The reason for the absence of a verdict.
    pub fn no_plan(self) -> Memo<Option<NoPlan>> {
        memo(move || match self.draft.get() {
            Some(draft) => Some(NoPlan::of_draft(&draft)),
            None => match self.faults.first() {
                Some((field, expected)) => Some(NoPlan::of_fault(field, expected)),
                None => self.answer.with(|answer| NoPlan::of(&answer.0)),
            },
        })
    }

    /// The fragment, without `#`, of the run and the pinned moment.
    pub fn fragment(self) -> String {
        with_pin(self.run(), self.shown.pinned.get())
    }

    /// The run's fragment, from the parsed answer: a long text is not parsed again.
    pub fn run(self) -> String {
        let encoded =
            |session: &Session| self.answer.with(|answer| link::encode(&answer.0.resolved.settings, &session.options));
        self.session.with(encoded)
    }

    /// Derives a value from the answer. The memo recomputes when the answer changes and notifies when the value
    /// changes.
    pub fn ask<T: PartialEq + Send + Sync + 'static>(
        self,
        question: impl Fn(&PlannedSession) -> T + Send + Sync + 'static,
    ) -> Memo<T> {
        memo(move || self.answer.with(|answer| question(&answer.0)))
    }

    /// Computes a value from the current answer and options, untracked.
    pub fn with_options<T>(self, question: impl FnOnce(&PlannedSession, &Options) -> T) -> T {
        self.session
            .with_untracked(|session| self.answer.with_untracked(|answer| question(&answer.0, &session.options)))
    }
}

impl OnGpu for Budget {
    fn options(self) -> Options {
        self.session.with(|session| session.options.clone())
    }

    fn edit_options(self, change: impl FnOnce(&mut Options)) {
        self.edit(|session| change(&mut session.options));
    }

    fn commit_options(self, change: impl FnOnce(&mut Options)) {
        self.commit(|session| change(&mut session.options));
    }

    fn draft(self) -> RwSignal<Option<GpuDraft>> {
        self.draft
    }

    fn faults(self) -> Faults {
        self.faults
    }

    fn gpu_bytes(self) -> Option<u64> {
        self.answer.with(|answer| Some(answer.0.plan()?.request.machine.device.total_bytes))
    }

    fn gpu_fault(self) -> Option<Text> {
        self.answer.with(|answer| answer.0.gpu_fault())
    }
}
