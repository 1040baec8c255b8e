//! A plan for posting: Markdown with the verdict, a table, and the link.

use headroom_planner::{
    advice::{Advice, Change, advise, changes_text},
    plan::Plan,
    session::Options,
};

use super::{
    answer::PlannedSession,
    fixes::rows_of,
    format,
    needs::Needs,
    verdict::{Verdict, memory_figures},
};
use crate::text::{self, say, t};

/// The Markdown; `None` without a plan. `link` is the calculator's address with this run, and the only link in the
/// Markdown.
pub fn forum_card(answer: &PlannedSession, options: &Options, link: &str) -> Option<String> {
    let plan = answer.plan()?;
    let verdict = Verdict::of_answer(answer)?;
    let mut rows = vec![(t(text::CARD_RUN), run(plan)), (t(text::GPU), gpu(plan))];
    let figures = memory_figures(plan).into_iter().take(3);
    rows.extend(figures.map(|figure| (figure.label, format!("{} {}", sign(&figure), figure.value).trim().to_owned())));
    let Needs { changes: needed, variable, vocab_size } = Needs::of_plan(plan);
    if !needed.is_empty() {
        let names: Vec<&str> = needed.iter().map(|change| t(change.text())).collect();
        let changes = say(&changes_text(&needed));
        rows.push((t(text::CARD_NEEDS), format!("{changes}: {}", names.join(", "))));
    }
    rows.extend(variable.map(|variable| (t(text::CARD_NEEDS), variable)));
    rows.extend(vocab_size.map(|size| (t(text::CARD_NEEDS), say(&text::a_vocabulary_of(size)))));
    if !plan.fits {
        let advice = advise(&answer.resolved.settings, options, plan);
        rows.extend(best(plan, &advice).map(|best| (t(text::CARD_FIX), best)));
    }
    let mut forum_card = format!("**{}** {}\n\n", verdict.headline, verdict.detail);
    for (index, (name, value)) in rows.iter().enumerate() {
        forum_card.push_str(&format!("| {name} | {} |\n", value.replace('|', "/")));
        if index == 0 {
            forum_card.push_str("| --- | --- |\n");
        }
    }
    forum_card.push_str(&format!("\n[{}]({link})\n", t(text::CARD_OPEN)));
    Some(forum_card)
}

fn sign(figure: &super::verdict::Figure) -> &'static str {
    figure.certainty.map_or("", format::mark)
}

/// The run in nanoGPT's keys.
fn run(plan: &Plan) -> String {
    let (gpt, train) = (plan.request.gpt.shape(), &plan.request.train);
    let mut run = String::new();
    for (key, value) in [
        ("n_layer", gpt.n_layer),
        ("n_head", gpt.n_head),
        ("n_embd", gpt.n_embd),
        ("batch_size", train.batch_size),
        ("block_size", gpt.block_size),
        ("gradient_accumulation_steps", train.gradient_accumulation_steps.saturating_mul(train.world_size)),
    ] {
        run.push_str(&format!("{key} {value} · "));
    }
    let compile = if train.compile { " · compile" } else { "" };
    format!("{run}{}{compile}", train.dtype.name())
}

fn gpu(plan: &Plan) -> String {
    let device = &plan.request.machine.device;
    let gpu = format!("{} {}", device.name, format::size(device.total_bytes));
    match plan.request.machine.other_processes_bytes {
        0 => gpu,
        others => say(&text::with_others(gpu, format::size(others))),
    }
}

/// The best change that suffices.
fn best(plan: &Plan, advice: &Advice) -> Option<String> {
    let row = rows_of(plan, advice).fixes.into_iter().find(|row| row.fits)?;
    let is_key = row.changes.iter().all(|change| matches!(change, Change::Key(..)));
    let settings = row.settings.replace('\n', ", ");
    Some(if is_key { format!("`{settings}`: {}", row.facts) } else { format!("{settings}: {}", row.facts) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::session::Session;

    #[test]
    fn forum_card_has_verdict_table_best_fix_and_link() {
        let mut session =
            Session { text: "batch_size = 64\ngradient_accumulation_steps = 1\n".into(), ..Session::default() };
        session.options.other_processes_bytes = 2 << 30;
        let forum_card =
            forum_card(&PlannedSession::of(&session), &session.options, "https://example.org/#1").expect("a plan");
        let lines: Vec<&str> = forum_card.lines().collect();
        assert!(
            lines[0].starts_with("**Does not fit: ") && lines[0].contains("on logits (65536, 50304)"),
            "{forum_card}"
        );
        assert!(lines[2].starts_with("| run | n_layer 12 · ") && lines[3] == "| --- | --- |", "{forum_card}");
        assert!(forum_card.contains("| GPU | GeForce RTX 4070 11.69 GiB, other programs 2.00 GiB |"), "{forum_card}");
        assert!(
            forum_card.contains("| best fix | `batch_size = 8, gradient_accumulation_steps = 8`: fits"),
            "{forum_card}"
        );
        assert!(forum_card.ends_with("[Open this plan in Headroom](https://example.org/#1)\n"), "{forum_card}");
    }

    #[test]
    fn run_with_code_change_is_marked() {
        let mut session = Session { text: "batch_size = 4\n".into(), ..Session::default() };
        session.options.activation_checkpointing = true;
        let forum_card = forum_card(&PlannedSession::of(&session), &session.options, "x").expect("a plan");
        assert!(forum_card.starts_with("**Fits with 1 change to model.py: "), "{forum_card}");
        assert!(forum_card.contains("| needs | 1 change to model.py: activation checkpointing |"), "{forum_card}");
    }

    #[test]
    fn a_run_that_fits_needs_no_fix() {
        let session = Session { text: "batch_size = 4\n".into(), ..Session::default() };
        let forum_card = forum_card(&PlannedSession::of(&session), &session.options, "x").expect("a plan");
        assert!(forum_card.starts_with("**Fits: ") && !forum_card.contains("best fix"), "{forum_card}");
    }
}
