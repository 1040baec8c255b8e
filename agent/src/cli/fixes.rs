//! What to change, for a person: what suffices, best first; what helps without sufficing; and the bounds.

use headroom_shared::{
    advice::{Advice, BatchSizes, ByHand, Change, Fix},
    plan::Plan,
    text,
    units::human_size,
};

use crate::cli::style::{Ink, Style};

/// More than these nobody reads.
const MAX_FIXES: usize = 5;

/// The section, where there is something to say.
pub fn fixes(plan: &Plan, advice: &Advice, style: &Style) -> Option<String> {
    if plan.fits {
        return Some(batch_sizes(&advice.batch_sizes, style));
    }
    let mut text = style.paint(Ink::Heading, "What to change, least harm first") + "\n";
    let (enough, not_enough): (Vec<&Fix>, Vec<&Fix>) = advice.fixes.iter().partition(|fix| fix.fits);
    for (index, fix) in enough.iter().take(MAX_FIXES).enumerate() {
        text.push_str(&enough_row(index + 1, fix, plan, style));
    }
    if !advice.keeps_model() {
        let card = advice.smallest_card.map_or_else(
            || "No change makes it fit on this card, and it fits on none of the table as it is.".to_owned(),
            |card| format!("No change makes it fit on this card. The smallest one it fits on as it is: {}.", card.name),
        );
        text.push_str(&style.wrapped(&card, 0));
    }
    if !not_enough.is_empty() {
        text.push_str(&style.paint(Ink::Quiet, "these help, and are not enough alone"));
        text.push('\n');
        for fix in not_enough.iter().take(MAX_FIXES) {
            let line = format!("{}  saves {}", arguments(fix, plan), human_size(fix.saves_bytes));
            text.push_str(&style.wrapped(&line, 3));
        }
    }
    text.push_str(&batch_sizes(&advice.batch_sizes, style));
    Some(text)
}

/// The largest batch that fits, and what is known of larger ones.
fn batch_sizes(sizes: &BatchSizes, style: &Style) -> String {
    let largest = match (sizes.largest, sizes.may_fit.is_empty()) {
        (Some(largest), _) => format!("The largest batch_size that fits, all else unchanged: {largest}."),
        (None, false) => text::english().word(text::NO_SURE_BATCH).to_owned(),
        (None, true) => "With nothing else changed, not even batch_size 1 fits.".to_owned(),
    };
    let may_fit = sizes.more_text().map_or_else(String::new, |more| format!(" {more}"));
    style.wrapped(&(largest + &may_fit), 0)
}

fn enough_row(rank: usize, fix: &Fix, plan: &Plan, style: &Style) -> String {
    let effect = fix.effect().text();
    let time = fix.step_time_ratio.map_or_else(String::new, |ratio| format!(", about {ratio:.2} x the time"));
    let left = human_size(fix.headroom_bytes.unsigned_abs());
    let head = format!("{rank}  {}", arguments(fix, plan));
    let body = format!("{effect}{time}, {left} left: {}", fix.note());
    let mut text = style.paint(Ink::Fits, style.wrapped(&head, 0).trim_end()) + "\n" + &style.wrapped(&body, 3);
    // Code is copied, so it is not wrapped.
    for change in &fix.changes {
        if let Some(ByHand::Code(code)) = change.by_hand() {
            code.lines().for_each(|line| text.push_str(&format!("   {}\n", style.paint(Ink::Quiet, line))));
        }
    }
    text
}

/// The fix as train.py takes it; behind it what train.py has no key for, with the option that plans it, and the variable it
/// may need.
fn arguments(fix: &Fix, plan: &Plan) -> String {
    let mut words = Vec::new();
    for change in &fix.changes {
        words.push(match change {
            Change::Key(..) => change.argument(),
            Change::Switch(switch) => match change.environment(plan.request.torch) {
                Some(variable) => format!("{variable} (planned by {})", change.argument()),
                None => format!("{} (planned by {})", switch.text(), change.argument()),
            },
        });
    }
    words.join(" ")
}
