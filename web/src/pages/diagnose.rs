//! The page that explains a message: a field for what was pasted, and what it means.

use leptos::prelude::*;
use web_sys::{DragEvent, File};

use crate::{
    browser,
    components::{
        dynamic::part,
        fixes::{apply_label, item},
        header::Header,
        long_text::LongText,
        open_file::{OpenNamed, read_file},
    },
    state::{
        diagnosis::{Candidate, Part, Shown, part_words, shown, wants_config},
        excerpt,
        fixes::{Row, Rows, applied},
        format,
        no_plan::with_file,
        session::Session,
    },
    text::{self, Key, say, t},
};

/// The page.
#[component]
pub fn DiagnosePage() -> impl IntoView {
    let (kept_message, kept_config) = browser::kept_message().unwrap_or_default();
    let carried = carried();
    let own_config = carried.as_ref().filter(|session| !session.is_untouched()).map(|session| session.text.clone());
    let options = carried.map(|session| session.options).unwrap_or_default();
    let pasted = RwSignal::new(kept_message);
    let config = RwSignal::new(if kept_config.is_empty() { own_config.unwrap_or_default() } else { kept_config });
    let leave = Callback::new(move |()| {
        pasted.with_untracked(|pasted| config.with_untracked(|config| browser::keep_message(pasted, config)));
    });
    let of_run = options.clone();
    let answer = Memo::new(move |_| pasted.with(|pasted| config.with(|config| shown(pasted, config, &of_run))));
    // The config goes along to the other pages: on the message's GPU, or on that of the calculator.
    Effect::new(move |_| {
        let diagnosed = answer.with(|answer| answer.as_ref()?.session.clone());
        let given = || {
            let text = config.get();
            let is_short = !text.trim().is_empty() && !excerpt::is_long(&text);
            is_short.then(|| Session { text, options: options.clone() })
        };
        if let Some(session) = diagnosed.or_else(given) {
            let fragment = session.fragment();
            browser::keep_text(&fragment, &session.text);
            browser::carry_run(&fragment);
        }
    });
    let example = move |_| {
        pasted.set(text::EXAMPLE_MESSAGE.to_owned());
        config.set(text::EXAMPLE_CONFIG.to_owned());
    };
    let dropped = move |event: DragEvent| {
        event.prevent_default();
        let file = event.data_transfer().and_then(|data| data.files()).and_then(|files| files.get(0));
        let unread = answer.with_untracked(|answer| answer.as_ref().and_then(|shown| shown.unread.clone()));
        read_file(file, move |name, text| {
            let Some(text) = text else { return };
            // A file of the name that is missing is the config.
            match unread.is_some_and(|unread| unread.rsplit(['/', '\\']).next() == Some(&name)) {
                true => config.update(|config| *config = with_file(config, &name, text, false)),
                false => pasted.set(text),
            }
        });
    };
    let opened = Callback::new(move |file| {
        read_file(file, move |name, text| {
            if let Some(text) = text {
                config.update(|config| *config = with_file(config, &name, text, true));
            }
        });
    });
    view! {
        <Header page=1 leave />
        <main class="diagnose" on:dragover=|event: DragEvent| event.prevent_default() on:drop=dropped>
            <section class="diagnose__given" aria-label=t(text::PASTE)>
                <div class="diagnose__head">
                    <label for="message">{t(text::PASTE)}</label>
                    <button type="button" class="button" id="example" data-testid="example" on:click=example>{t(text::EXAMPLE)}</button>
                </div>
                <LongText id="message" class="input diagnose__text" rows="12" placeholder=t(text::PASTE_PLACEHOLDER)
                    value=pasted on_change=move |text: String| pasted.set(text) />
                <label for="config">{t(text::PASTE_CONFIG)}</label>
                <LongText id="config" class="input diagnose__text" rows="6" placeholder=t(text::PASTE_CONFIG_PLACEHOLDER)
                    value=config on_change=move |text: String| config.set(text) />
            </section>
            <section class="diagnose__answer" id="answer" tabindex="-1" aria-label=t(text::NAME) aria-live="polite">
                {part(move || match answer.get() {
                    Some(shown) => meaning(&shown, leave, opened).into_any(),
                    None => view! { <p class="diagnose__empty">{t(text::NOTHING_PASTED)}</p> }.into_any(),
                })}
            </section>
        </main>
    }
}

/// The run that the address has, with its comments where this window knows them.
fn carried() -> Option<Session> {
    let kept = browser::kept_text();
    let kept = kept.as_ref().map(|(of, text)| (of.as_str(), text.as_str()));
    Session::open(&browser::fragment(), kept).map(|opened| opened.session)
}

fn meaning(shown: &Shown, leave: Callback<()>, opened: Callback<Option<File>>) -> impl IntoView + use<> {
    let unread = shown.unread.clone().map(|name| {
        view! {
            <p class="diagnose__hint" data-testid="unread">{say(&text::no_plan_not_read(name.as_str()))}</p>
            <OpenNamed name opened />
        }
    });
    let asks = wants_config(shown).then(|| view! { <p class="diagnose__hint">{t(text::CONFIG_SAYS_MORE)}</p> });
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
    view! {
        <div class="panel diagnose__meaning">
            <h1 class="diagnose__sentence" data-testid="explanation">{shown.sentence.clone()}</h1>
            {problems} {unread} {agreement} {several} {asks} {open}
        </div>
        {bar(shown)}
        {candidates(&shown.candidates)}
        {fixes}
    }
}

/// The card as a bar: who holds what, and what is missing.
fn bar(shown: &Shown) -> Option<AnyView> {
    if shown.parts.is_empty() {
        return None;
    }
    let scale = shown.card_bytes.saturating_add(shown.missing_bytes).max(1);
    let share = |bytes: u64| headroom_shared::decimal::ratio(bytes.saturating_mul(100), scale, 2);
    let missing = Part { band: "diagnose__missing", label: t(text::MISSING), bytes: shown.missing_bytes };
    let missing = (shown.missing_bytes > 0).then_some(missing);
    let (mut rects, mut legend) = (Vec::new(), Vec::new());
    let mut at = 0_u64;
    for part in shown.parts.iter().chain(&missing) {
        let said = part_words(part);
        rects.push(view! {
            <rect class=part.band x=share(at) width=share(part.bytes) y="0" height="10"><title>{said.clone()}</title></rect>
        });
        legend.push(view! {
            <li>
                <svg class="diagnose__key" viewBox="0 0 10 10" aria-hidden="true"><rect class=part.band width="10" height="10" /></svg>
                {said}
            </li>
        });
        at = at.saturating_add(part.bytes);
    }
    Some(
        view! {
            <div class="panel">
                <h2 class="panel-title">{say(&text::on_the_card(format::size(shown.card_bytes)))}</h2>
                <svg class="diagnose__bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label=say(&text::on_the_card(format::size(shown.card_bytes)))
                    data-testid="bar">{rects}</svg>
                <ul class="diagnose__legend">{legend}</ul>
            </div>
        }
        .into_any(),
    )
}

fn candidates(found: &[Candidate]) -> Option<AnyView> {
    if found.is_empty() {
        return None;
    }
    let rows: Vec<_> = found
        .iter()
        .map(|candidate| {
            let exact = candidate.exact.then(|| view! { <span class="phases__badge">{t(text::TO_THE_DIGIT)}</span> });
            view! {
                <li class="diagnose__tensor"><code>{candidate.tensor.clone()}</code> " " {candidate.phase} " " {exact}</li>
            }
        })
        .collect();
    Some(
        view! {
            <div class="panel">
                <h2 class="panel-title">{t(text::CANDIDATES)}</h2>
                <ol class="diagnose__tensors" data-testid="candidates">{rows}</ol>
            </div>
        }
        .into_any(),
    )
}

/// A link to the calculator with a run. Its config goes along as it is, with comments and order, and what was pasted here
/// waits for the way back.
fn budget_link(session: Session, class: &'static str, label: String, word: Key, leave: Callback<()>) -> AnyView {
    let href = format!("./{}#{}", browser::query(), session.fragment());
    let keep = move |_| {
        browser::keep_text(&session.fragment(), &session.text);
        leave.run(());
    };
    let label = (!label.is_empty()).then_some(label);
    view! { <a class=class aria-label=label href=href on:click=keep>{t(word)}</a> }.into_any()
}

/// The fixes; each opens the calculator with itself applied.
fn what_to_change(rows: Rows, session: &Session, leave: Callback<()>) -> impl IntoView + use<> {
    let row = |fix: Row| {
        let after = applied(session, &fix.changes, &session.options.gpu);
        let class = if fix.fits { "button button--primary" } else { "button" };
        let link = budget_link(after, class, apply_label(&fix), text::APPLY, leave);
        item(fix, link)
    };
    let lead = (!rows.lead.is_empty()).then(|| view! { <p class="fixes__lead">{rows.lead.clone()}</p> });
    let fixes: Vec<AnyView> = rows.fixes.into_iter().map(row).collect();
    view! {
        <div class="panel">
            <h2 class="panel-title">{t(text::FIXES)}</h2>
            {lead}
            <ol class="fixes__list" data-testid="fixes">{fixes}</ol>
        </div>
    }
}
