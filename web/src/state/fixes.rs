//! Fixes as the page shows them, and their application.

use std::sync::Arc;

use headroom_planner::{
    advice::{Advice, ByHand, Change, Fix, advise, time_text},
    memory::message::TorchVersion,
    nanogpt::Value,
    plan::Plan,
};

use super::{
    answer::PlannedSession,
    edit, format,
    needs::{self, Needs},
    session::Session,
};
use crate::text::{self, say, t};

/// One fix in words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Its id, for tests.
    pub id: String,
    /// The settings that it changes.
    pub settings: String,
    /// Its effect on GPU memory, on training, and on time.
    pub facts: String,
    /// Its benefit and its cost.
    pub reason: String,
    /// The manual steps: a description, and the code or the environment variable, if any.
    pub by_hand: Vec<(&'static str, String)>,
    /// Whether the fix suffices.
    pub fits: bool,
    /// The changes of a fix of nanoGPT, which the button applies.
    pub changes: Vec<Change>,
}

/// The change to another micro-batch size.
pub fn with_batch_size(n: u64) -> Change {
    Change::Key("batch_size", Value::Int(i64::try_from(n).unwrap_or(i64::MAX)))
}

/// The fixes and the text around them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// The fixes, best first.
    pub fixes: Vec<Row>,
    /// The text above or instead of the fixes.
    pub lead: String,
    /// The largest micro-batch, if a larger one than the run's fits.
    pub larger: Option<u64>,
    /// Whether the run fits and has no fix, so that the text is about its room to grow.
    pub has_room: bool,
}

/// Advice on an answer, in words; `None` without a plan.
pub fn rows(answer: &PlannedSession, session: &Session) -> Option<Rows> {
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
        by_hand: fix.changes.iter().filter_map(|change| by_hand(change, plan.request.machine.torch)).collect(),
        fits: fix.fits,
        changes: fix.changes.clone(),
    };
    let fixes: Vec<_> = advice.fixes.iter().map(row).collect();
    Rows { has_room: plan.fits && fixes.is_empty(), fixes, lead, larger }
}

fn lead(advice: &Advice, plan: &Plan, larger: Option<u64>) -> String {
    let sizes = &advice.batch_sizes;
    let more = || sizes.more().iter().fold(String::new(), |said, sentence| said + " " + &say(sentence));
    let largest = |largest: u64| say(&text::room_for(largest)) + &more();
    match (plan.fits, larger.or(sizes.largest)) {
        (true, Some(size)) if size == plan.request.train.batch_size => t(text::NO_ROOM_FOR_MORE).to_owned() + &more(),
        (true, Some(size)) => largest(size),
        (true, None) => t(text::NO_SURE_BATCH).to_owned() + &more(),
        (false, size) if advice.keeps_model() => size.map_or_else(String::new, largest),
        (false, _) => match advice.smallest_gpu {
            Some(gpu) => say(&text::nothing_fits_but(&*gpu.name)),
            None => t(text::NOTHING_FITS).to_owned(),
        },
    }
}

/// The changes in words, one per line, such as `batch_size = 8`.
fn settings(changes: &[Change]) -> String {
    let lines = changes.iter().map(|change| match change {
        Change::Key(key, value) => format!("{key} = {value}"),
        Change::Switch(switch) => t(switch.text()).to_owned(),
    });
    lines.reduce(|text, line| text + "\n" + &line).unwrap_or_default()
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
    let mut facts = vec![outcome, effect.to_owned(), say(&text::fix_saves(format::size(fix.saves_bytes)))];
    facts.extend(fix.step_time_ratio.map(|ratio| say(&time_text(ratio))));
    in_line(&facts)
}

/// Joins facts of a fix. Each of them stays on one line.
pub fn in_line(facts: &[String]) -> String {
    let facts = facts.iter().map(|fact| fact.replace(' ', "\u{a0}"));
    facts.reduce(|line, fact| line + "; " + &fact).unwrap_or_default()
}

/// The session with the changes applied. Comments on the changed lines of a config name the GPU and the other
/// requirements.
pub fn applied(session: &Session, changes: &[Change], gpu: &str) -> Session {
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
        let needs = Needs::of_session(&after);
        let why = match needs.is_empty() {
            true => text::fix_why(gpu),
            false => text::fix_why_needs(gpu, needs.in_full()),
        };
        after.text = edit::set_because(&session.text, &keys, &say(&why));
    }
    after.text = needs::noted(&after);
    after.comments_for = after.fragment();
    after
}

/// Shared rows. Two are equal if they are the same.
pub type SharedRows = Option<Arc<Rows>>;

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_planner::{advice::RunSwitch, nanogpt::Value};
    use proptest::prelude::*;

    fn ask(text: &str) -> (Session, Rows) {
        let mut session = Session { text: text.into(), ..Session::default() };
        session.options.other_processes_bytes = 2 << 30;
        let rows = rows(&PlannedSession::of(&session), &session).expect("a plan");
        (session, rows)
    }

    #[test]
    fn a_fix_that_fits_fits_once_it_is_made() {
        let (session, rows) = ask("batch_size = 64  # big\ngradient_accumulation_steps = 1\n");
        let best = &rows.fixes[0];
        assert!(best.fits);
        let after = applied(&session, &best.changes, "RTX 4070");
        assert!(PlannedSession::of(&after).plan().is_some_and(|plan| plan.fits), "{}", after.text);
        assert!(after.text.contains("# headroom: fits RTX 4070"), "{}", after.text);
    }

    #[test]
    fn a_change_to_the_code_is_a_comment_in_the_config() {
        let (session, rows) = ask("batch_size = 16\n");
        let chunked = rows.fixes.iter().find(|row| row.id == "chunked_cross_entropy").expect("it is offered");
        let after = applied(&session, &chunked.changes, "RTX 4070");
        let note = "# headroom (chunked_loss): needs 1 change to model.py: chunked cross-entropy\n";
        assert_eq!(after.text, format!("{note}{}", session.text));
        assert_ne!(after.options, session.options);
    }

    #[test]
    fn a_changed_line_names_the_variable_that_it_counts_on() {
        let (session, _) = ask("batch_size = 64\n");
        let changes = [Change::Key("batch_size", Value::Int(10)), Change::Switch(RunSwitch::ExpandableSegments)];
        let after = applied(&session, &changes, "RTX 4070");
        let variable = "needs PYTORCH_ALLOC_CONF=expandable_segments:True";
        let expected =
            format!("# headroom (expandable): {variable}\nbatch_size = 10  # headroom: fits RTX 4070, {variable}\n");
        assert_eq!(after.text, expected);
    }

    #[test]
    fn a_changed_line_names_the_change_to_the_code_that_it_counts_on() {
        let (session, _) = ask("batch_size = 64\n");
        let changes = [Change::Key("batch_size", Value::Int(20)), Change::Switch(RunSwitch::ChunkedLoss)];
        let after = applied(&session, &changes, "RTX 4070");
        let line = "batch_size = 20  # headroom: fits RTX 4070, needs 1 change to model.py: chunked cross-entropy";
        assert!(after.text.lines().any(|other| other == line), "{}", after.text);
    }

    /// The fixes of a session and of its link.
    fn rows_of_both(session: &Session) -> [Option<Rows>; 2] {
        let opened = Session::open(&session.fragment(), None).expect("a link").session;
        [session, &opened].map(|session| rows(&PlannedSession::of(session), session))
    }

    #[test]
    fn a_fix_keeps_the_tokens_of_the_run_as_it_is() {
        let mut session = Session { text: "batch_size = 64\n".into(), ..Session::default() };
        let micro_batch = |session: &Session| {
            let [own, opened] = rows_of_both(session);
            assert_eq!(own, opened, "{}", session.text);
            own.and_then(|rows| rows.fixes.into_iter().find(|row| row.id == "micro_batch")).expect("it is offered")
        };
        session = applied(&session, &micro_batch(&session).changes, "RTX 4070");
        let count = |session: &Session, key: &str| PlannedSession::of(session).count(key);
        let tokens =
            |session: &Session| count(session, "batch_size").zip(count(session, "gradient_accumulation_steps"));
        assert_eq!(tokens(&session), Some((10, 256)));
        session.set_keys(&[("batch_size", Value::Int(64))]);
        session = applied(&session, &micro_batch(&session).changes, "RTX 4070");
        let (batch, steps) = tokens(&session).expect("counts");
        assert_eq!(batch * steps, 64 * 256);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3))]

        /// After any sequence of fixes and edits, the fixes are those of the run's link.
        #[test]
        fn fixes_are_those_of_the_link(
            rounds in prop::collection::vec((0_usize..4, prop::option::of((0_usize..3, 4_u32..7))), 1..4),
        ) {
            let mut session = Session { text: "batch_size = 64\n".into(), ..Session::default() };
            for (fix, edit) in rounds {
                if let Some((key, power)) = edit {
                    let key = ["batch_size", "gradient_accumulation_steps", "block_size"][key];
                    session.set_keys(&[(key, Value::Int(3 << power))]);
                    session.settle();
                }
                let [own, opened] = rows_of_both(&session);
                prop_assert_eq!(&own, &opened, "{}", session.text);
                if let Some(row) = own.as_ref().and_then(|rows| rows.fixes.get(fix)) {
                    session = applied(&session, &row.changes, "RTX 4070");
                }
            }
            let [own, opened] = rows_of_both(&session);
            prop_assert_eq!(own, opened, "{}", session.text);
        }
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
        assert!(rows.has_room);
    }

    #[test]
    fn run_that_no_change_makes_fit_has_no_room_to_grow() {
        let mut session = Session { text: "batch_size = 1\nn_layer = 1\n".into(), ..Session::default() };
        session.options.vram_bytes = Some(1 << 20);
        let rows = rows(&PlannedSession::of(&session), &session).expect("a plan");
        assert!(rows.lead.starts_with("No change that keeps the model makes it fit"), "{rows:?}");
        assert!(rows.fixes.iter().all(|fix| !fix.fits) && !rows.has_room, "{rows:?}");
    }
}
