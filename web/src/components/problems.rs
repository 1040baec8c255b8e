//! Problems of the config and the run. The first ones are listed, and a button lists all.

use headroom_planner::nanogpt::{PastedKind, Severity};
use leptos::prelude::*;
use wasm_bindgen::JsCast;
use web_sys::HtmlTextAreaElement;

use super::dynamic::{act, part, words};
use crate::{
    browser,
    state::{
        CONFIG_NAME,
        answer::{PlannedSession, Reading, is_gpu_fault},
        budget::Budget,
        excerpt::is_long,
        memo::memo,
        places,
        sentence::{named_key, sentence},
    },
    text::{self, say, t},
};

/// One line of the list.
#[derive(Clone, PartialEq)]
struct Line {
    severity: Severity,
    /// Line and column in the text, if the problem has a position there.
    place: Option<(u32, u32)>,
    /// The argument, file or key at fault, if there is no position.
    key: String,
    message: String,
}

fn lines(answer: &PlannedSession) -> Vec<Line> {
    // The verdict offers to explain the message.
    if answer.reading == Reading::OutOfMemory {
        return Vec::new();
    }
    // Only a config's line numbers refer to the text. Arguments of a command and files of a log have their own.
    let has_places = answer.kind == PastedKind::Config;
    let problems = answer.resolved.settings.problems.as_slice().iter();
    let problems = problems.map(|problem| Line {
        severity: problem.severity,
        place: (has_places && problem.line > 0).then_some((problem.line, problem.column)),
        // Pasted text has no file name.
        key: if has_places || problem.source == CONFIG_NAME { String::new() } else { problem.source.clone() },
        message: match &problem.hint {
            Some(hint) => {
                let [message, hint] = [&problem.message, hint].map(|part| text::verbatim(sentence(part)));
                say(&text::with_hint(message, hint))
            }
            None => sentence(&problem.message),
        },
    });
    // The GPU field shows its own error.
    let findings = answer.resolved.findings.iter().filter(|finding| !is_gpu_fault(finding)).map(|finding| Line {
        severity: finding.severity,
        place: None,
        key: named_key(finding.key, &say(&finding.message)),
        message: sentence(&finding.message),
    });
    let foreign = match answer.reading {
        // If the parser found no setting, its own problems already say so.
        Reading::Foreign if answer.resolved.settings.found_nothing() => None,
        Reading::Foreign => Some(t(text::FOREIGN)),
        Reading::OutOfMemory | Reading::Empty | Reading::Run => None,
    };
    let foreign = foreign.map(|sentence| Line {
        severity: Severity::Warning,
        place: None,
        key: String::new(),
        message: sentence.to_owned(),
    });
    let lines: Vec<Line> = problems.chain(findings).collect();
    // First the note that the text may not be a run, then the most severe problems, then the order of the text.
    let of = |severity: Severity| lines.iter().filter(move |line| line.severity == severity).cloned();
    foreign.into_iter().chain(of(Severity::Error)).chain(of(Severity::Warning)).chain(of(Severity::Note)).collect()
}

/// The list of problems; without problems it shows the detected format of the text.
#[component]
pub fn Problems(
    /// The calculator's state.
    budget: Budget,
) -> impl IntoView {
    let shown = budget.ask(lines);
    let read_as = budget.ask(|answer| match answer.reading {
        Reading::Empty => t(text::READS_DEFAULTS).to_owned(),
        Reading::Run => say(&text::read_as(answer.kind, answer.resolved.settings.values.len())),
        Reading::Foreign | Reading::OutOfMemory => String::new(),
    });
    let is_open = RwSignal::new(false);
    let count = memo(move || shown.with(Vec::len));
    let more = move || {
        let n = count.get();
        (n > N_SEEN).then(|| {
            view! {
                <button type="button" class="problems__more" id="all-problems" data-testid="all-problems"
                    aria-controls="problems" aria-expanded=words(move || is_open.get().to_string())
                    on:click=act(move || is_open.update(|open| *open = !*open))>
                    {words(move || if is_open.get() { t(text::PROBLEMS_FEWER).to_owned() } else { say(&text::problems_all(n)) })}
                </button>
            }
        })
    };
    view! {
        <div class="problems__box">
            <ul class="problems" id="problems" data-testid="problems" aria-label=t(text::PROBLEMS)>
                {part(move || {
                    let n_listed = if is_open.get() { usize::MAX } else { N_SEEN };
                    shown.get().into_iter().take(n_listed).map(|line| problem(budget, line)).collect::<Vec<_>>()
                })}
                <li class="problems__read">{words(move || read_as.get())}</li>
            </ul>
            {part(more)}
        </div>
    }
}

/// Number of problems that are listed. If there are more, a button lists all.
const N_SEEN: usize = 4;

fn problem(budget: Budget, line: Line) -> impl IntoView {
    let Line { severity, place, key, message } = line;
    let (class, word) = match severity {
        Severity::Error => ("problems__line problems__line--error", t(text::SEVERITY_ERROR)),
        Severity::Warning => ("problems__line problems__line--warning", t(text::SEVERITY_WARNING)),
        Severity::Note => ("problems__line", t(text::SEVERITY_NOTE)),
    };
    let jump = place.map(|(line, column)| {
        view! {
            <button type="button" class="problems__place" on:click=act(move || jump_to(budget, line, column))>
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
    // For a long text the field shows only an excerpt, in which positions differ.
    let found = budget.session.with_untracked(|session| {
        (!is_long(&session.text)).then(|| places::place(&session.text, line, column)).flatten()
    });
    let Some(place) = found else { return };
    let area = document().get_element_by_id("config");
    if let Some(area) = area.and_then(|area| area.dyn_into::<HtmlTextAreaElement>().ok()) {
        browser::select(&area, place.start, place.end, place.depth);
    }
}
