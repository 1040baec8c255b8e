//! What was noticed about the config and the run, in a box of its own height so that nothing below it moves.

use headroom_shared::nanogpt::{PastedKind, Severity};
use leptos::prelude::*;
use wasm_bindgen::JsCast;
use web_sys::HtmlTextAreaElement;

use super::dynamic::{flag, part, words};
use crate::{
    browser,
    state::{
        answer::{Answer, Reading},
        budget::Budget,
        excerpt::is_long,
        places,
    },
    text::{self, say, t},
};

/// One line of the list.
#[derive(Clone, PartialEq)]
struct Line {
    severity: Severity,
    /// Line and column in the text, where it has a place there.
    place: Option<(u32, u32)>,
    /// What it is about, where it has no place.
    key: String,
    message: String,
}

fn lines(answer: &Answer) -> Vec<Line> {
    // Only a config's lines are lines of the text; a command's arguments and a log's files count their own.
    let has_places = answer.kind == PastedKind::Config;
    let problems = answer.resolved.settings.problems.as_slice().iter().map(|problem| Line {
        severity: problem.severity,
        place: (has_places && problem.line > 0).then_some((problem.line, problem.column)),
        key: if has_places { String::new() } else { problem.source.clone() },
        message: match &problem.hint {
            Some(hint) => say(&text::with_hint(problem.message.clone(), hint.clone())),
            None => say(&problem.message),
        },
    });
    let findings = answer.resolved.findings.iter().map(|finding| Line {
        severity: finding.severity,
        place: None,
        key: finding.key.to_owned(),
        message: say(&finding.message),
    });
    let foreign = match answer.reading {
        // The reader says so itself, where it found something amiss.
        Reading::Foreign if answer.resolved.settings.found_nothing() => None,
        Reading::Foreign => Some(t(text::FOREIGN)),
        Reading::OutOfMemory => Some(t(text::FOREIGN_OUT_OF_MEMORY)),
        Reading::Empty | Reading::Run => None,
    };
    let foreign = foreign.map(|sentence| Line {
        severity: Severity::Warning,
        place: None,
        key: String::new(),
        message: sentence.to_owned(),
    });
    let lines: Vec<Line> = problems.chain(findings).collect();
    // That none of it may matter before all, then the worst, else in the order of the text.
    let of = |severity: Severity| lines.iter().filter(move |line| line.severity == severity).cloned();
    foreign.into_iter().chain(of(Severity::Error)).chain(of(Severity::Warning)).chain(of(Severity::Note)).collect()
}

/// The list; where there is nothing to say it tells what the text was taken for.
#[component]
pub fn Problems(
    /// The page.
    budget: Budget,
) -> impl IntoView {
    let shown = budget.ask(lines);
    let read_as = budget.ask(|answer| match answer.reading {
        Reading::Empty => t(text::READS_DEFAULTS).to_owned(),
        Reading::Run => say(&text::read_as(answer.kind, answer.resolved.settings.values.len())),
        Reading::Foreign | Reading::OutOfMemory => String::new(),
    });
    let is_open = RwSignal::new(false);
    let count = Memo::new(move |_| shown.with(Vec::len));
    let more = move || {
        let n = count.get();
        (n > N_SEEN).then(|| {
            view! {
                <button type="button" class="problems__more" id="all-problems" data-testid="all-problems"
                    aria-controls="problems" aria-expanded=words(move || is_open.get().to_string())
                    on:click=move |_| is_open.update(|open| *open = !*open)>
                    {words(move || if is_open.get() { t(text::PROBLEMS_FEWER).to_owned() } else { say(&text::problems_all(n)) })}
                </button>
            }
        })
    };
    view! {
        <div class="problems__box" class:problems__box--open=flag(move || is_open.get() && count.get() > N_SEEN)>
            {part(more)}
            <ul class="problems" id="problems" data-testid="problems" tabindex="0" aria-label=t(text::PROBLEMS)>
                {part(move || shown.get().into_iter().map(|line| problem(budget, line)).collect::<Vec<_>>())}
                <li class="problems__read">{words(move || read_as.get())}</li>
            </ul>
        </div>
    }
}

/// Problems that the box has room for; where there are more, a button shows all.
const N_SEEN: usize = 2;

fn problem(budget: Budget, line: Line) -> impl IntoView {
    let Line { severity, place, key, message } = line;
    let (class, word) = match severity {
        Severity::Error => ("problems__line problems__line--error", t(text::SEVERITY_ERROR)),
        Severity::Warning => ("problems__line problems__line--warning", t(text::SEVERITY_WARNING)),
        Severity::Note => ("problems__line", t(text::SEVERITY_NOTE)),
    };
    let jump = place.map(|(line, column)| {
        view! {
            <button type="button" class="problems__place" on:click=move |_| jump_to(budget, line, column)>
                {format!("{line}:{column}")}
            </button>
        }
    });
    view! {
        <li class=class>
            <span class="problems__severity">{word}</span>
            " "
            {jump}
            {(!key.is_empty()).then(|| view! { <code class="problems__key">{key}</code> })}
            " " {message}
        </li>
    }
}

fn jump_to(budget: Budget, line: u32, column: u32) {
    // Of a long text the field shows parts, which have other places.
    let found = budget.session.with_untracked(|session| {
        (!is_long(&session.text)).then(|| places::place(&session.text, line, column)).flatten()
    });
    let Some(place) = found else { return };
    let area = document().get_element_by_id("config");
    if let Some(area) = area.and_then(|area| area.dyn_into::<HtmlTextAreaElement>().ok()) {
        browser::select(&area, place.start, place.end, place.depth);
    }
}
