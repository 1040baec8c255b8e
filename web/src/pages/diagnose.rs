//! The page that explains out-of-memory messages: input fields and the diagnosis.

mod address;
mod search;
mod trainer;

use headroom_planner::link::trainer::encode;
use headroom_text::Text;
use leptos::prelude::*;
use web_sys::{DragEvent, File};

use crate::{
    browser,
    components::{
        actions::{CopyButton, command_words},
        diagnosis::{
            bar::bar,
            candidates::candidates,
            empty::empty,
            offers::{offers, searching, trainer_link},
            remedies::remedies,
        },
        dynamic::{IntoPart, Part, part, part_of, words},
        fixes::{apply_label, item},
        header::Header,
        long_text::LongText,
        notice::Notice,
        open_file::{OpenNamed, read_file},
    },
    state::{
        answer::{PlannedSession, describes_run},
        command::command_line,
        diagnosis::{ShownDiagnosis, shown},
        fixes::{Row, Rows, applied},
        memo::memo,
        needs,
        no_plan::with_file,
        pasted::PastedText,
        session::Session,
        solving::{Offer, SearchProgress},
    },
    text::{self, Key, say, t},
};
use address::keep_address;
use search::keep_search;
use trainer::TrainerFixes;

/// The content of the two fields with the run's options, and how the address is updated.
#[derive(Clone, Copy)]
struct Fields {
    pasted: RwSignal<PastedText>,
    /// Whether the next answer is a separate step in the browser's history.
    is_step: StoredValue<bool>,
}

impl Fields {
    /// Changes the fields as one step of the browser's history.
    fn step(self, change: impl FnOnce(&mut PastedText)) {
        self.is_step.set_value(true);
        self.pasted.update(change);
    }

    /// Applies an offered run.
    fn take(self, offer: Offer) {
        self.step(|pasted| {
            pasted.config = offer.config;
            pasted.options.expandable_segments = offer.expandable_segments;
            if offer.math_attention {
                pasted.options.attention = headroom_planner::train_config::Attention::Math;
            }
        });
        browser::scroll_to("answer");
    }
}

/// The page that explains out-of-memory messages.
#[component]
pub fn DiagnosePage() -> impl IntoView {
    let fields = Fields { pasted: RwSignal::new(address::opened()), is_step: StoredValue::new(false) };
    let pasted = fields.pasted;
    let leave = Callback::new(move |()| {
        pasted.with_untracked(|pasted| {
            address::write(browser::fragment().trim_start_matches('#'), pasted);
            browser::keep_message(&pasted.message, &pasted.config);
        });
    });
    let answer = memo(move || pasted.with(|pasted| shown(&pasted.message, &pasted.config, &pasted.options)));
    let config_fault = memo(move || answer.with(|answer| answer.as_ref().map_or("", |shown| shown.config_fault)));
    let solved = RwSignal::new(SearchProgress::default());
    keep_search(answer, solved);
    keep_address(fields, answer);
    let example = Callback::new(move |()| {
        fields.step(|pasted| {
            pasted.message = text::EXAMPLE_MESSAGE.to_owned();
            pasted.config = text::EXAMPLE_CONFIG.to_owned();
        });
    });
    let notice = RwSignal::new(None::<Text>);
    let place = move |config: &mut String, name: &str, text: String, is_meant: bool| {
        let with = with_file(config, name, &text, is_meant);
        notice.set(with.other_name.map(|named| text::used_as(name, named.as_str())));
        *config = with.text.unwrap_or(text);
    };
    let read = move |text: Result<String, Text>| {
        notice.set(text.as_ref().err().cloned());
        text.ok()
    };
    let dropped = move |event: DragEvent| {
        event.prevent_default();
        let file = event.data_transfer().and_then(|data| data.files()).and_then(|files| files.get(0));
        let unread = answer.with_untracked(|answer| answer.as_ref().and_then(|shown| shown.unread.clone()));
        read_file(file, move |name, text| {
            let Some(text) = read(text) else { return };
            // A dropped file with the name of the missing config is that config.
            let is_config = unread.is_some_and(|unread| unread.rsplit(['/', '\\']).next() == Some(&name));
            fields.step(|pasted| match is_config {
                true => place(&mut pasted.config, &name, text, false),
                false => pasted.message = text,
            });
        });
    };
    let opened = Callback::new(move |file| {
        read_file(file, move |name, text| {
            if let Some(text) = read(text) {
                fields.step(|pasted| place(&mut pasted.config, &name, text, true));
            }
        });
    });
    let take = Callback::new(move |offer| fields.take(offer));
    view! {
        <Header page=1 leave />
        <Notice notice />
        <main class="diagnose" on:dragover=|event: DragEvent| event.prevent_default() on:drop=dropped>
            <section class="diagnose__given" aria-label=t(text::PASTE) on:paste=move |_| fields.is_step.set_value(true)>
                <label for="message">{t(text::PASTE)}</label>
                <LongText id="message" class="input diagnose__text" rows="12" replaces=describes_run placeholder=t(text::PASTE_PLACEHOLDER)
                    value=Signal::derive(move || pasted.with(|pasted| pasted.message.clone()))
                    on_change=move |text: String| pasted.update(|pasted| pasted.message = text) />
                <label for="config">{t(text::PASTE_CONFIG)}</label>
                <LongText id="config" class="input diagnose__text" rows="6" replaces=describes_run placeholder=t(text::PASTE_CONFIG_PLACEHOLDER)
                    invalid=Signal::derive(move || !config_fault.get().is_empty()) described_by="config-fault"
                    value=Signal::derive(move || pasted.with(|pasted| pasted.config.clone()))
                    on_change=move |text: String| pasted.update(|pasted| pasted.set_config(text)) />
                <p class="diagnose__fault" id="config-fault" data-testid="config-fault" role="alert">{words(move || config_fault.get().to_owned())}</p>
            </section>
            <section class="diagnose__answer" id="answer" tabindex="-1" aria-label=t(text::PAGE_DIAGNOSE) aria-live="polite">
                {part(move || match answer.get() {
                    Some(shown) => meaning(&shown, solved, leave, opened, take).into_any(),
                    None => empty(example),
                })}
            </section>
        </main>
    }
}

fn meaning(
    shown: &ShownDiagnosis,
    solved: RwSignal<SearchProgress>,
    leave: Callback<()>,
    opened: Callback<Option<File>>,
    take: Callback<Offer>,
) -> impl IntoView + use<> {
    let unread = shown.unread.clone().map(|name| {
        view! {
            <p class="diagnose__hint" data-testid="unread">{say(&text::no_plan_not_read(name.as_str()))}</p>
            <OpenNamed name opened />
        }
    });
    let several = (!shown.several.is_empty()).then(|| view! { <p class="diagnose__hint">{shown.several.clone()}</p> });
    let problems = (!shown.problems.is_empty()).then(|| {
        let lines: Vec<_> = shown.problems.iter().map(|line| view! { <li>{line.clone()}</li> }).collect();
        view! { <ul class="diagnose__problems" role="alert" data-testid="problems">{lines}</ul> }
    });
    let agreement = (!shown.agreement.is_empty()).then(|| {
        view! { <p class="diagnose__agreement" data-testid="agreement">{shown.agreement}</p> }
    });
    let session = shown.session.clone();
    let fixes =
        shown.fixes.clone().zip(shown.session.clone()).map(|(rows, session)| what_to_change(rows, &session, leave));
    let open = session.map(|session| {
        let class = "button";
        view! { <span data-testid="open-budget">{budget_link(session, class, String::new(), text::OPEN_BUDGET, leave)}</span> }
    });
    let differences = (!shown.differences.is_empty()).then(|| {
        let lines: Vec<_> = shown.differences.iter().map(|line| view! { <li>{line.clone()}</li> }).collect();
        view! {
            <div data-testid="differences">
                <p>{t(text::DISAGREES_WITH_CONFIG)}</p>
                <ul class="diagnose__differences">{lines}</ul>
                <p class="diagnose__hint">{t(text::OTHER_CAUSES)}</p>
            </div>
        }
    });
    let of_trainer = shown
        .trainer
        .as_ref()
        .map(|(input, options)| trainer_link("button", &encode(input, options), text::OPEN_BUDGET, String::new()));
    let trainer_fixes = shown.trainer.clone().map(|(input, options)| view! { <TrainerFixes input options /> });
    let sentence = shown.sentence.clone();
    let is_unsolved = shown.unsolved.is_some();
    // A solved run replaces the headline derived from the size alone, but not that about a known config.
    let is_headline = shown.unsolved.as_ref().is_some_and(|unsolved| !unsolved.has_config);
    // The offers stay as they are when the search ends without another one.
    let offered = move || {
        let show = move |solved: SearchProgress| offers(&solved, is_headline && solved.exact, take);
        part_of(move || SearchProgress { searching: false, ..solved.get() }, show)
    };
    let headline = move || {
        solved.with(|solved| match is_headline && solved.exact {
            true => solved.headline.clone(),
            false => sentence.clone(),
        })
    };
    // The search is over and has not found a run that reproduces more than the size.
    let is_unknown =
        move || is_unsolved && solved.with(|solved| !solved.searching && (solved.offers.is_empty() || solved.by_size));
    let of_unknown = shown.unsolved.clone().map(|unsolved| {
        let shown = shown.clone();
        part_of(is_unknown, move |is_unknown| is_unknown.then(|| remedies(&shown, &unsolved)))
    });
    view! {
        <div class="panel diagnose__meaning">
            <h1 class="diagnose__sentence" data-testid="explanation">{words(headline)}</h1>
            {problems} {unread} {agreement} {differences} {several}
            {is_unsolved.then(offered)}
            {searching(solved)}
            {open}
            {of_trainer}
        </div>
        {fixes}
        {trainer_fixes}
        {of_unknown}
        {bar(shown)}
        {candidates(&shown.candidates, is_unknown, take)}
    }
}

/// Renders a link to the calculator with a run. The config keeps its comments and order. The text pasted here is kept
/// for the way back.
fn budget_link(session: Session, class: &'static str, label: String, word: Key, leave: Callback<()>) -> Part {
    let href = browser::page_with("calculator.html", &session.fragment());
    let keep = move |_| {
        browser::keep_text(&session.fragment(), &session.text);
        leave.run(());
    };
    let label = (!label.is_empty()).then_some(label);
    view! { <a class=class aria-label=label href=href on:click=keep>{t(word)}</a> }.into_part()
}

/// Renders the fixes, each with a link to the calculator with that fix applied. The best fix's config, command and link
/// can be copied here.
fn what_to_change(rows: Rows, session: &Session, leave: Callback<()>) -> impl IntoView + use<> {
    let best = rows.fixes.iter().find(|fix| fix.fits).map(|fix| applied(session, &fix.changes, &session.options.gpu));
    let row = |fix: Row| {
        let after = applied(session, &fix.changes, &session.options.gpu);
        let class = if fix.fits { "button button--primary" } else { "button" };
        let link = budget_link(after, class, apply_label(&fix), text::APPLY, leave);
        item(fix, link)
    };
    let lead = (!rows.lead.is_empty()).then(|| view! { <p class="fixes__lead">{rows.lead.clone()}</p> });
    let mut fixes: Vec<Part> = rows.fixes.into_iter().map(row).collect();
    if let Some(best) = best {
        fixes.insert(1, copies(&best));
    }
    view! {
        <div class="panel">
            <h2 class="panel-title">{t(text::FIXES)}</h2>
            {lead}
            <ol class="fixes__list" data-testid="fixes">{fixes}</ol>
        </div>
    }
}

/// Renders the run with the best fix applied: its command, and buttons to copy the config, the command and the link.
fn copies(session: &Session) -> Part {
    let command = command_line(&PlannedSession::of(session), &session.options);
    let (config, fragment) = (needs::noted(session), session.fragment());
    let of_command = command.clone();
    let link = move |()| {
        let folder = browser::folder();
        Some(format!("{folder}calculator.html{}#{fragment}", browser::query()))
    };
    view! {
        <li class="diagnose__copies" data-testid="copies">
            <pre class="fixes__code" tabindex="0" data-testid="fixed-command">{command_words(&command)}</pre>
            <CopyButton id="copy-config" label=t(text::COPY_CONFIG) content=move |()| Some(config.clone()) />
            <CopyButton id="copy-command" label=t(text::COPY_COMMAND) content=move |()| Some(of_command.clone()) />
            <CopyButton id="copy-link" label=t(text::COPY_LINK) content=link />
        </li>
    }
    .into_part()
}
