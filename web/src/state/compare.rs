//! Two runs side by side: the pinned one, and one that is changed or previewed.

pub mod moment;
pub mod overlay;
pub mod rows;
#[cfg(test)]
mod tests;
pub mod view;

use std::sync::Arc;

use headroom_planner::{advice::Change, link};
use leptos::prelude::*;

use self::{
    moment::ComparedMoment,
    view::{ComparedRun, ComparisonView},
};
use super::{
    answer::{PlannedSession, Shared},
    budget::Budget,
    fixes::applied,
    memo::memo,
    session::Session,
};

/// A fix that is shown in place of the changed run.
#[derive(Clone, Debug, PartialEq)]
pub struct Preview {
    /// The settings that it changes, in one line.
    pub settings: String,
    /// The run with the fix.
    pub session: Session,
    /// Its plan.
    pub answer: Shared,
}

/// The signals of the page that compares two runs.
#[derive(Clone, Copy)]
pub struct Comparison {
    /// The changed run, which the form edits.
    pub changed: Budget,
    /// The pinned run. Only [`Comparison::set_pinned`] changes it.
    pub pinned: ReadSignal<Session>,
    write: WriteSignal<Session>,
    /// The result of the pinned run.
    pub pinned_answer: Memo<Shared>,
    /// Whether the fixes are those of the changed run: it differs from the pinned one and does not fit.
    pub fixes_changed: Memo<bool>,
    /// The fix under the pointer or with the focus.
    pub preview: RwSignal<Option<Preview>>,
}

impl Comparison {
    /// Creates the signals. Both runs are nanoGPT's default run.
    pub fn new() -> Self {
        let (pinned, write) = signal(Session::default());
        let pinned_answer = memo(move || pinned.with(|session| Shared(Arc::new(PlannedSession::of(session)))));
        let changed = Budget::new();
        let fails = move || changed.answer.with(|answer| answer.0.plan().is_some_and(|plan| !plan.fits));
        let differs = move || changed.session.with(|session| pinned.with(|pinned| session != pinned));
        let fixes_changed = memo(move || fails() && differs());
        Self { changed, pinned, write, pinned_answer, fixes_changed, preview: RwSignal::new(None) }
    }

    /// Sets the pinned run.
    pub fn set_pinned(self, session: Session) {
        if self.pinned.with_untracked(|pinned| *pinned != session) {
            self.write.set(session);
        }
        self.preview.set(None);
    }

    /// Pins the changed run, as a step of the history.
    pub fn pin(self) {
        self.changed.commit(|_| {});
        self.set_pinned(self.changed.session.get_untracked());
    }

    /// Exchanges the runs, as a step of the history.
    pub fn swap(self) {
        let (pinned, changed) = (self.pinned.get_untracked(), self.changed.session.get_untracked());
        self.changed.commit(|session| *session = pinned);
        self.set_pinned(changed);
    }

    /// Sets the changed run to the pinned one, as a step of the history.
    pub fn change_back(self) {
        let pinned = self.pinned.get_untracked();
        self.changed.commit(|session| *session = pinned);
    }

    /// The fragment of the pinned run.
    pub fn pinned_run(self) -> String {
        let encoded = |session: &Session| {
            self.pinned_answer.with(|answer| link::encode(&answer.0.resolved.settings, &session.options))
        };
        self.pinned.with(encoded)
    }

    /// The fragment of both runs.
    pub fn fragment(self) -> String {
        link::with_compared(self.changed.run(), &self.pinned_run())
    }

    /// The run whose fixes are listed.
    pub fn fixed_session(self) -> Session {
        match self.fixes_changed.get() {
            true => self.changed.session.get(),
            false => self.pinned.get(),
        }
    }

    /// The result of the run whose fixes are listed.
    pub fn fixed_answer(self) -> Shared {
        match self.fixes_changed.get() {
            true => self.changed.answer.get(),
            false => self.pinned_answer.get(),
        }
    }

    /// The run whose fixes are listed, with one of them; `None` without a plan.
    pub fn with_fix(self, changes: &[Change]) -> Option<Session> {
        let (session, answer) = untrack(|| (self.fixed_session(), self.fixed_answer()));
        Some(applied(&session, changes, &answer.0.plan()?.request.machine.device.name))
    }

    /// Shows a fixed run in place of the changed run. Neither run changes.
    pub fn show_preview(self, settings: &str, changes: &[Change]) {
        let Some(session) = self.with_fix(changes) else { return };
        let answer = Shared(Arc::new(PlannedSession::of(&session)));
        self.preview.set(Some(Preview { settings: settings.replace('\n', ", "), session, answer }));
    }

    /// Makes the fixed run the changed run, as a step of the history.
    pub fn apply(self, changes: &[Change]) {
        let Some(session) = self.with_fix(changes) else { return };
        self.preview.set(None);
        self.changed.commit(|changed| *changed = session);
    }

    /// Both runs as the page shows them.
    pub fn view(self) -> Memo<ComparisonView> {
        let no_plan = self.changed.no_plan();
        memo(move || {
            self.pinned.with(|session| {
                self.pinned_answer.with(|answer| {
                    let pinned = ComparedRun { session, answer: &answer.0, no_plan: None };
                    self.preview.with(|preview| match preview {
                        Some(Preview { settings, session, answer }) => {
                            let changed = ComparedRun { session, answer: &answer.0, no_plan: None };
                            ComparisonView::of(&pinned, &changed, Some(settings))
                        }
                        None => self.changed.session.with(|session| {
                            let no_plan = no_plan.get();
                            self.changed.answer.with(|answer| {
                                let changed = ComparedRun { session, answer: &answer.0, no_plan };
                                ComparisonView::of(&pinned, &changed, None)
                            })
                        }),
                    })
                })
            })
        })
    }

    /// Both runs at a column of the chart; `None` without one.
    pub fn moment(self, view: Memo<ComparisonView>, column: Memo<Option<usize>>) -> Memo<Option<ComparedMoment>> {
        memo(move || {
            let column = column.get()?;
            let (phase, moments) = view.with(|view| view.overlay.as_ref()?.moment(column))?;
            self.pinned_answer.with(|pinned| {
                let compared = |changed: &Shared| {
                    let plans = [pinned.0.plan()?, changed.0.plan()?];
                    Some(ComparedMoment::of(phase, plans, moments))
                };
                self.preview.with(|preview| match preview {
                    Some(preview) => compared(&preview.answer),
                    None => self.changed.answer.with(compared),
                })
            })
        })
    }
}
