//! The record of fixes applied to a session's text: the run that their comments describe, and the values before them.

use headroom_planner::nanogpt::{Settings, Value};

/// The keys whose product is the tokens per iteration.
const TOKEN_KEYS: [&str; 3] = ["batch_size", "gradient_accumulation_steps", "block_size"];

/// The values that fixes wrote.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FixRecord {
    /// The run that the comments in the text describe, as a link's fragment. Empty without one.
    pub comments_for: String,
    /// Counts that a fix set.
    counts: Vec<FixedCount>,
}

/// A count that a fix set instead of the user's value.
#[derive(Clone, Debug, PartialEq)]
struct FixedCount {
    key: &'static str,
    /// The last value that the user set.
    own: u64,
    /// The value that the fix set.
    fixed: u64,
}

impl FixRecord {
    /// Records the counts that a fix sets in a run with these settings.
    pub fn add(&mut self, settings: &Settings, changes: &[(&'static str, Value)]) {
        for (key, value) in changes {
            let (Some(own), Some(fixed)) = (self.own_count(settings, key), count(value)) else { continue };
            if TOKEN_KEYS.contains(key) {
                self.counts.retain(|count| count.key != *key);
                self.counts.push(FixedCount { key, own, fixed });
            }
        }
    }

    /// The tokens per iteration of the user's own values: a fixed value counts as the one before the fix. `None` if no
    /// fix changed one.
    pub fn own_tokens(&self, settings: &Settings) -> Option<u64> {
        if self.counts.is_empty() {
            return None;
        }
        TOKEN_KEYS.iter().try_fold(1_u64, |tokens, key| tokens.checked_mul(self.own_count(settings, key)?))
    }

    fn own_count(&self, settings: &Settings, key: &str) -> Option<u64> {
        let now = count(&settings.value(key)?)?;
        let fixed = self.counts.iter().find(|count| count.key == key && count.fixed == now);
        Some(fixed.map_or(now, |count| count.own))
    }
}

fn count(value: &Value) -> Option<u64> {
    match value {
        Value::Int(int) => u64::try_from(*int).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use headroom_planner::{advice::Change, nanogpt::Value};
    use proptest::prelude::*;

    use super::super::{fixes::applied, read_settings, session::Session};

    fn count(session: &Session, key: &str) -> u64 {
        let settings = read_settings(&session.text);
        settings.value(key).and_then(|value| super::count(&value)).expect("a count")
    }

    fn own_tokens(session: &Session) -> Option<u64> {
        session.own_tokens(&read_settings(&session.text))
    }

    fn int(count: u64) -> Value {
        Value::Int(i64::try_from(count).expect("small"))
    }

    /// Imitates a fix: about the same number of sequences, in steps of `batch_size`.
    fn micro_batch(session: &Session, batch_size: u64) -> Session {
        let tokens = own_tokens(session);
        let block_size = count(session, "block_size");
        let sequences = tokens.map_or_else(
            || count(session, "batch_size") * count(session, "gradient_accumulation_steps"),
            |tokens| tokens / block_size,
        );
        let steps = sequences / batch_size;
        let changes =
            [Change::Key("batch_size", int(batch_size)), Change::Key("gradient_accumulation_steps", int(steps))];
        applied(session, &changes, "L4")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The user sets the batch, applies fixes, and undoes some, in any order. A fix keeps the tokens of the user's
        /// own values, however often fixes were applied before.
        #[test]
        fn fixes_keep_the_tokens_that_a_person_set(
            steps in 1_u64..8,
            rounds in prop::collection::vec((0_u32..5, 0_u32..5, any::<bool>()), 1..6),
        ) {
            let text = format!("batch_size = 64\ngradient_accumulation_steps = {steps}\n");
            let mut session = Session { text, ..Session::default() };
            for (by_hand, fixed, is_undone) in rounds {
                // Not a power of two, unlike the fix's value, so that the two cannot be confused.
                let own = 3_u64 << by_hand;
                session.set_keys(&[("batch_size", int(own))]);
                session.settle();
                let before = session.clone();
                let after = micro_batch(&session, 1 << fixed.min(by_hand));
                let sequences = count(&after, "batch_size") * count(&after, "gradient_accumulation_steps");
                prop_assert_eq!(sequences, own * steps, "{}", after.text);
                prop_assert_eq!(own_tokens(&after), Some(own * steps * 1024));
                session = if is_undone { before } else { after };
            }
        }
    }
}
