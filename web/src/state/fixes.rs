//! Fixes as the page shows them, and a fix made.

use std::sync::Arc;

use headroom_shared::{
    advice::{Advice, ByHand, Change, Fix, advise, needs_text},
    memory::message::TorchVersion,
    plan::Plan,
};

use super::{answer::Answer, edit, format, needs, session::Session};
use crate::text::{self, say, t};

/// One fix in words.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its id, for tests.
    pub id: String,
    /// What is set.
    pub settings: String,
    /// What it does to the card, to training, and to the time.
    pub facts: String,
    /// Why it helps and what it costs.
    pub reason: String,
    /// What is done by hand: what it is, and the code or the variable, if any.
    pub by_hand: Vec<(&'static str, String)>,
    /// Whether it suffices.
    pub fits: bool,
    /// What a press changes.
    pub changes: Vec<Change>,
}

/// All there is to say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// The fixes, best first.
    pub fixes: Vec<Row>,
    /// What is said above or instead of them.
    pub lead: String,
    /// The largest micro-batch, where a run fits with more than it has.
    pub larger: Option<u64>,
}

/// Advice on an answer, in words; `None` where there is no plan.
pub fn rows(answer: &Answer, session: &Session) -> Option<Rows> {
    let plan = answer.plan()?;
    Some(rows_of(plan, &advise(&answer.resolved.settings, &session.options, plan)))
}

/// Advice in words.
pub fn rows_of(plan: &Plan, advice: &Advice) -> Rows {
    let now = plan.request.train.batch_size;
    let larger = advice.batch_sizes.largest.filter(|largest| plan.fits && *largest > now);
    let lead = lead(advice, plan, larger);
    let row = |fix: &Fix| Row {
        id: fix.id(),
        settings: settings(&fix.changes),
        facts: facts(fix),
        reason: say(&fix.note()),
        by_hand: fix.changes.iter().filter_map(|change| by_hand(change, plan.request.torch)).collect(),
        fits: fix.fits,
        changes: fix.changes.clone(),
    };
    Rows { fixes: advice.fixes.iter().map(row).collect(), lead, larger }
}

fn lead(advice: &Advice, plan: &Plan, larger: Option<u64>) -> String {
    let sizes = &advice.batch_sizes;
    let more = || sizes.more_text().map_or_else(String::new, |more| format!(" {}", say(&more)));
    let largest = |largest: u64| say(&text::room_for(largest)) + &more();
    match (plan.fits, larger.or(sizes.largest)) {
        (true, Some(size)) if size == plan.request.train.batch_size => t(text::NO_ROOM_FOR_MORE).to_owned() + &more(),
        (true, Some(size)) => largest(size),
        (true, None) => t(text::NO_SURE_BATCH).to_owned() + &more(),
        (false, size) if advice.keeps_model() => size.map_or_else(String::new, largest),
        (false, _) => match advice.smallest_card {
            Some(card) => say(&text::nothing_fits_but(&*card.name)),
            None => t(text::NOTHING_FITS).to_owned(),
        },
    }
}

/// `batch_size 8 · gradient_accumulation_steps 64`.
fn settings(changes: &[Change]) -> String {
    let words: Vec<String> = changes
        .iter()
        .map(|change| match change {
            Change::Key(key, value) => format!("{key} = {value}"),
            Change::Switch(switch) => t(switch.text()).to_owned(),
        })
        .collect();
    words.join("\n")
}

fn by_hand(change: &Change, torch: TorchVersion) -> Option<(&'static str, String)> {
    Some(match change.by_hand()? {
        ByHand::Code(code) => (t(text::HOW_PATCH), code.to_owned()),
        ByHand::Variable => (t(text::HOW_VARIABLE), format!("export {}", change.environment(torch)?)),
        ByHand::Close => (t(text::HOW_CLOSE), String::new()),
    })
}

fn facts(fix: &Fix) -> String {
    let effect = t(fix.effect().text());
    let size = format::size(fix.headroom_bytes.unsigned_abs());
    let outcome = say(&if fix.fits { text::fix_leaves(size) } else { text::fix_lacks(size) });
    let mut facts = vec![outcome, effect.to_owned(), format!("−{}", format::size(fix.saves_bytes))];
    facts.extend(fix.step_time_ratio.map(|ratio| say(&text::fix_time(percent(ratio)))));
    facts.join(" · ")
}

/// A ratio of times as whole percents.
fn percent(ratio: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let percent = (ratio * 100.0).round().clamp(1.0, 100_000.0) as u64;
    percent
}

/// The session with the changes made; changed lines of a config say for which card, and what else that needs.
pub fn applied(session: &Session, changes: &[Change], card: &str) -> Session {
    let mut after = session.clone();
    let keys: Vec<_> = changes
        .iter()
        .filter_map(|change| match change {
            Change::Key(key, value) => Some((*key, value.clone())),
            Change::Switch(switch) => {
                switch.set(&mut after.options);
                None
            }
        })
        .collect();
    if !keys.is_empty() {
        after.text = edit::set(&session.text, &keys);
        let needed = needs::of_session(&after);
        let why = match needed.is_empty() {
            true => text::fix_why(card),
            false => text::fix_why_needs(card, needs_text(&needed, text::table())),
        };
        after.text = edit::set_because(&session.text, &keys, &say(&why));
    }
    after.text = needs::noted(&after);
    after
}

/// Rows that are handed around; two are equal if they are the same.
pub type SharedRows = Option<Arc<Rows>>;

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_shared::{advice::Switch, nanogpt::Value};

    fn ask(text: &str) -> (Session, Rows) {
        let mut session = Session { text: text.into(), ..Session::default() };
        session.options.other_processes_bytes = 2 << 30;
        let rows = rows(&Answer::of(&session), &session).expect("a plan");
        (session, rows)
    }

    #[test]
    fn a_fix_that_fits_fits_once_it_is_made() {
        let (session, rows) = ask("batch_size = 64  # big\ngradient_accumulation_steps = 1\n");
        let best = &rows.fixes[0];
        assert!(best.fits);
        let after = applied(&session, &best.changes, "RTX 4070");
        assert!(Answer::of(&after).plan().is_some_and(|plan| plan.fits), "{}", after.text);
        assert!(after.text.contains("# headroom: fits RTX 4070"), "{}", after.text);
    }

    #[test]
    fn a_change_to_the_code_is_a_comment_in_the_config() {
        let (session, rows) = ask("batch_size = 16\n");
        let chunked = rows.fixes.iter().find(|row| row.id == "chunked_cross_entropy").expect("it is offered");
        let after = applied(&session, &chunked.changes, "RTX 4070");
        let note = "# headroom (code): needs 1 change to model.py: chunked cross-entropy\n";
        assert_eq!(after.text, format!("{note}{}", session.text));
        assert_ne!(after.options, session.options);
    }

    #[test]
    fn a_changed_line_names_the_change_to_the_code_that_it_counts_on() {
        let (session, _) = ask("batch_size = 64\n");
        let changes = [Change::Key("batch_size", Value::Int(20)), Change::Switch(Switch::ChunkedLoss)];
        let after = applied(&session, &changes, "RTX 4070");
        let line = "batch_size = 20  # headroom: fits RTX 4070, needs 1 change to model.py: chunked cross-entropy";
        assert!(after.text.lines().any(|other| other == line), "{}", after.text);
    }

    #[test]
    fn a_command_stays_one() {
        let (session, rows) = ask("python train.py --batch_size=64 --gradient_accumulation_steps=1");
        let after = applied(&session, &rows.fixes[0].changes, "RTX 4070");
        assert!(after.text.starts_with("python train.py --batch_size=8"), "{}", after.text);
    }

    #[test]
    fn a_run_that_fits_says_how_far_it_goes() {
        let (_, rows) = ask("batch_size = 2\n");
        assert!(rows.fixes.is_empty() && rows.larger.is_some_and(|larger| larger > 4) && !rows.lead.is_empty());
    }
}
