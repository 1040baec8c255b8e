//! Two runs side by side: the pinned one, and one that is changed or previewed.

pub mod calculator;
pub mod moment;
pub mod overlay;
pub mod rows;
pub mod run;
#[cfg(test)]
mod tests;
pub mod view;

use headroom_planner::{link, plan::Fit};
use leptos::prelude::*;

use self::{
    calculator::{Calculator, Proposal},
    run::SharedRun,
    view::ComparisonView,
};
use super::memo::memo;

/// A fix that is shown in place of the changed run.
#[derive(Clone, Debug, PartialEq)]
pub struct Preview {
    /// The settings that it changes, in one line.
    pub settings: String,
    /// The run with the fix.
    pub run: SharedRun,
}

/// The signals of the page that compares two runs of a calculator.
pub struct Comparison<C: Calculator> {
    /// The changed run, which the form edits.
    pub changed: C,
    /// The pinned run. Only [`Comparison::set_pinned`] changes it.
    pub pinned: ReadSignal<C::Session>,
    write: WriteSignal<C::Session>,
    /// The fragment of the pinned run.
    pub pinned_link: Memo<String>,
    /// The result of the pinned run.
    pub pinned_run: Memo<SharedRun>,
    /// The result of the changed run.
    pub changed_run: Memo<SharedRun>,
    /// Whether the fixes are those of the changed run: it differs from the pinned one and does not fit.
    pub fixes_changed: Memo<bool>,
    /// The fix under the pointer or with the focus.
    pub preview: RwSignal<Option<Preview>>,
}

impl<C: Calculator> Clone for Comparison<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C: Calculator> Copy for Comparison<C> {}

impl<C: Calculator> Comparison<C> {
    /// Creates the signals. Both runs are the calculator's.
    pub fn new(changed: C) -> Self {
        let (pinned, write) = signal(changed.session().get_untracked());
        let pinned_link = memo(move || pinned.with(C::link_of));
        let pinned_run = memo(move || SharedRun::from(pinned.with(C::compared_of)));
        let changed_run = memo(move || SharedRun::from(changed.compared()));
        let fails = move || changed_run.with(|run| run.plan.as_ref().is_ok_and(|plan| plan.fit() == Fit::Fails));
        let differs = move || changed.session().with(|session| pinned.with(|pinned| session != pinned));
        let fixes_changed = memo(move || fails() && differs());
        let preview = RwSignal::new(None);
        Self { changed, pinned, write, pinned_link, pinned_run, changed_run, fixes_changed, preview }
    }

    /// Sets the pinned run.
    pub fn set_pinned(self, session: C::Session) {
        if self.pinned.with_untracked(|pinned| *pinned != session) {
            self.write.set(session);
        }
        self.preview.set(None);
    }

    /// Pins the changed run, as a step of the history.
    pub fn pin(self) {
        self.changed.commit(|_| {});
        self.set_pinned(self.changed.session().get_untracked());
    }

    /// Exchanges the runs, as a step of the history.
    pub fn swap(self) {
        let (pinned, changed) = (self.pinned.get_untracked(), self.changed.session().get_untracked());
        self.changed.commit(|session| *session = pinned);
        self.set_pinned(changed);
    }

    /// Sets the changed run to the pinned one, as a step of the history.
    pub fn change_back(self) {
        let pinned = self.pinned.get_untracked();
        self.changed.commit(|session| *session = pinned);
    }

    /// The fragment of both runs.
    pub fn fragment(self) -> String {
        self.pinned_link.with(|pinned| link::with_compared(self.changed.link(), pinned))
    }

    /// The run whose fixes are listed.
    pub fn fixed_session(self) -> C::Session {
        match self.fixes_changed.get() {
            true => self.changed.session().get(),
            false => self.pinned.get(),
        }
    }

    /// Shows a fixed run in place of the changed run. Neither run changes.
    pub fn show_preview(self, proposal: &Proposal<C::Session>) {
        let settings = proposal.row.settings.replace('\n', ", ");
        self.preview.set(Some(Preview { settings, run: C::compared_of(&proposal.session).into() }));
    }

    /// Makes the fixed run the changed run, as a step of the history.
    pub fn apply(self, proposal: Proposal<C::Session>) {
        self.preview.set(None);
        self.changed.commit(|changed| *changed = proposal.session);
    }

    /// Both runs as the page shows them.
    pub fn view(self) -> Memo<ComparisonView> {
        memo(move || {
            let pinned = self.pinned_run.get();
            match self.preview.get() {
                Some(Preview { settings, run }) => ComparisonView::of(&pinned, &run, Some(settings)),
                None => self.changed_run.with(|changed| ComparisonView::of(&pinned, changed, None)),
            }
        })
    }
}
