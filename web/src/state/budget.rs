//! The signals that the budget page's components share: what was given, what it comes to, and which moment is shown.

use std::sync::Arc;

use headroom_shared::{session::Options, text::Text};
use leptos::prelude::*;

use super::{
    answer::{Answer, Shared},
    chart,
    session::{Opened, Session},
};
use crate::text;

/// The signals of the page.
#[derive(Clone, Copy)]
pub struct Budget {
    /// What the person gave.
    pub session: RwSignal<Session>,
    /// What it comes to.
    pub answer: Memo<Shared>,
    /// The moment that is kept in view, as a share of the run; `None` follows the failure or the peak.
    pub pinned: RwSignal<Option<f64>>,
    /// The moment that is pointed at.
    pub pointed: RwSignal<Option<f64>>,
    /// What an opened link had that was left out.
    pub notice: RwSignal<Option<Text>>,
}

impl Budget {
    /// The signals, with nanoGPT's own run to start with.
    pub fn new() -> Self {
        let session = RwSignal::new(Session::default());
        Self {
            session,
            answer: Memo::new(move |before: Option<&Shared>| {
                let before = before.map(|before| &*before.0);
                session.with(|session| Shared(Arc::new(Answer::after(session, before))))
            }),
            pinned: RwSignal::new(None),
            pointed: RwSignal::new(None),
            notice: RwSignal::new(None),
        }
    }

    /// Shows what a link held, and says what of it was left out.
    pub fn open(self, Opened { mut session, unknown, later_version, .. }: Opened) {
        session.set_options(|_| {});
        let left_out = later_version.is_some() || !unknown.is_empty();
        self.notice.set(left_out.then(|| text::left_out(&unknown, later_version)));
        self.session.set(session);
        self.pinned.set(None);
    }

    /// Something of the answer, computed when the answer changes and passed on when it itself does.
    pub fn ask<T: PartialEq + Send + Sync + 'static>(
        self,
        question: impl Fn(&Answer) -> T + Send + Sync + 'static,
    ) -> Memo<T> {
        self.ask_boxed(Box::new(question))
    }

    /// One copy of the framework's code a type, not one a question.
    fn ask_boxed<T: PartialEq + Send + Sync + 'static>(
        self,
        question: Box<dyn Fn(&Answer) -> T + Send + Sync>,
    ) -> Memo<T> {
        Memo::new(move |_| self.answer.with(|answer| question(&answer.0)))
    }

    /// Something of the answer and the options it was asked with, as they are now.
    pub fn with_options<T>(self, question: impl FnOnce(&Answer, &Options) -> T) -> T {
        self.session
            .with_untracked(|session| self.answer.with_untracked(|answer| question(&answer.0, &session.options)))
    }

    /// Whether what is drawn is of an earlier session, as this one has no plan.
    pub fn is_stale(self) -> Memo<bool> {
        self.ask(|answer| answer.planned.is_err())
    }

    /// The column of the chart whose moment is shown.
    pub fn shown_column(self) -> Memo<Option<usize>> {
        Memo::new(move |_| {
            let share = self.pointed.get().or_else(|| self.pinned.get());
            self.answer.with(|answer| {
                let planned = answer.0.drawn()?;
                let n_columns = planned.timeline.points.len();
                Some(match share {
                    Some(share) => chart::column_at_share(n_columns, share),
                    None => planned.first_shown(),
                })
            })
        })
    }
}
