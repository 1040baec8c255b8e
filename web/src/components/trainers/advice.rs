//! What to change so that the run fits, and the largest values that fit if nothing else changes.

use std::{sync::Arc, time::Duration};

use headroom_planner::{
    advice::Knob,
    trainers::fixes::{TrainerAdvice, TrainerFix, advise},
};
use leptos::prelude::*;

use super::super::{
    dynamic::{IntoPart, Part, act, flag, part},
    fixes,
};
use crate::{
    browser,
    state::{
        trainer::{TrainerPage, fix_row},
        trainer_form::key,
    },
    text::{self, say, t},
};

/// Delay after an edit before the advice is computed, so that the page stays responsive while a slider moves.
const DELAY: Duration = Duration::from_millis(200);

/// The panels with the fixes and the largest values that fit.
#[component]
pub fn Advice(
    /// The page's state.
    page: TrainerPage,
) -> impl IntoView {
    let advice = RwSignal::new(None::<Arc<TrainerAdvice>>);
    let is_stale = RwSignal::new(true);
    keep_advice(page, advice, is_stale);
    let fixes = move || advice.get().filter(|advice| has_fixes(advice)).map(|advice| fixes_panel(page, &advice));
    let rows = move || {
        let advice = advice.get();
        advice.map(|advice| advice.largest.iter().map(|(knob, largest)| row(page, *knob, *largest)).collect::<Vec<_>>())
    };
    view! {
        <div class="advice" class:stale=flag(move || is_stale.get()) data-testid="advice">
            {part(fixes)}
            <section class="fits" aria-labelledby="fits-title" data-testid="fits">
                <h2 class="panel-title" id="fits-title">{t(text::TRAINER_LARGEST)}</h2>
                <table class="fits__table"><tbody>{part(rows)}</tbody></table>
            </section>
        </div>
    }
}

/// Computes the advice after each change of the plan.
fn keep_advice(page: TrainerPage, advice: RwSignal<Option<Arc<TrainerAdvice>>>, is_stale: RwSignal<bool>) {
    let pending = StoredValue::new(None::<TimeoutHandle>);
    Effect::new(move |_| {
        page.answer.track();
        is_stale.set(true);
        if let Some(pending) = pending.get_value() {
            pending.clear();
        }
        let compute = move || {
            advice.set(page.answer.plan_untracked(advise).map(Arc::new));
            is_stale.set(false);
        };
        pending.set_value(set_timeout_with_handle(compute, DELAY).ok());
    });
}

/// Whether there is a fix or an obstacle to show.
pub fn has_fixes(advice: &TrainerAdvice) -> bool {
    !advice.fixes.is_empty() || !advice.obstacle.is_empty()
}

fn fixes_panel(page: TrainerPage, advice: &TrainerAdvice) -> impl IntoView + use<> {
    let rows: Vec<Part> = advice.fixes.iter().map(|fix| item(page, fix)).collect();
    view! {
        <section class="fixes" aria-labelledby="fixes-title">
            <h2 class="panel-title" id="fixes-title">{t(text::FIXES)}</h2>
            <div class="fixes__body" data-testid="fixes">
                <ol class="fixes__list">{rows}</ol>
                {obstacle(advice)}
            </div>
        </section>
    }
}

/// Why no change that keeps the training makes the run fit.
pub fn obstacle(advice: &TrainerAdvice) -> Vec<Part> {
    let sentence = |sentence| view! { <p class="fixes__lead">{say(sentence)}</p> }.into_part();
    advice.obstacle.iter().map(sentence).collect()
}

/// A fix with the button that applies it.
fn item(page: TrainerPage, fix: &TrainerFix) -> Part {
    let (changes, row) = (fix.clone(), fix_row(fix));
    let apply = act(move || {
        page.commit(|session| session.apply(&changes));
        browser::show_answer();
    });
    let button = view! {
        <button type="button" class="button" class:button--primary=row.fits aria-label=fixes::apply_label(&row) on:click=apply>
            {t(text::APPLY)}
        </button>
    };
    fixes::item(row, button.into_part())
}

/// The largest value of an option, with the button that applies it.
fn row(page: TrainerPage, knob: Knob, largest: Option<u64>) -> Part {
    let Knob { key: name, value: given, .. } = knob;
    let option = key(page.session.with_untracked(|session| session.trainer), name);
    let apply = option.zip(largest).filter(|(_, largest)| *largest != given).map(|(option, largest)| {
        let apply = act(move || page.commit(|session| session.set(option, &largest.to_string())));
        view! {
            <button type="button" class="button" aria-label=format!("{} --{name}={largest}", t(text::APPLY)) on:click=apply>
                {t(text::APPLY)}
            </button>
        }
    });
    // Lines break at the underscores.
    let words: Vec<Part> = name.split_inclusive('_').map(|word| view! { {word} <wbr /> }.into_part()).collect();
    let largest = largest.map_or_else(|| t(text::TRAINER_NONE_FITS).to_owned(), |largest| largest.to_string());
    view! {
        <tr data-key=name>
            <th scope="row"><code>{words}</code></th>
            <td><strong>{largest}</strong></td>
            <td>{say(&text::trainer_given(given.to_string()))}</td>
            <td>{apply}</td>
        </tr>
    }
    .into_part()
}
