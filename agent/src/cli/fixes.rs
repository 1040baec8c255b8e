//! Formats fixes for the terminal: sufficient ones, best first; helpful but insufficient ones; and the bounds.

use headroom_planner::{
    advice::{Advice, BatchSizes, ByHand, Change, Effect, Fix, RunSwitch},
    memory::message::TorchVersion,
    plan::{Fit, Plan},
    trainers::fixes::{TrainerAdvice, TrainerFix},
};
use headroom_text::{self as text, units::human_size};

use crate::cli::style::{Ink, Style};

/// Limit of listed fixes.
const MAX_FIXES: usize = 5;

/// Formats the section, if there is anything to report.
pub fn fixes(plan: &Plan, advice: &Advice, style: &Style) -> Option<String> {
    if plan.fits {
        return Some(batch_sizes(&advice.batch_sizes, style));
    }
    let mut text = style.paint(Ink::Heading, "What to change, least impact first") + "\n";
    let (enough, not_enough): (Vec<&Fix>, Vec<&Fix>) = advice.fixes.iter().partition(|fix| fix.fits);
    for (index, fix) in enough.iter().take(MAX_FIXES).enumerate() {
        text.push_str(&enough_row(index + 1, fix, plan, style));
    }
    if !advice.keeps_model() {
        let gpu = advice.smallest_gpu.map_or_else(
            || "No change that keeps the model makes it fit on this GPU, and it fits on no known GPU unchanged.".to_owned(),
            |gpu| format!("No change that keeps the model makes it fit on this GPU. The smallest GPU that fits it unchanged: {}.", gpu.name),
        );
        text.push_str(&style.wrapped(&gpu, 0));
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

/// Formats the section for a run of another trainer that does not fit.
pub fn trainer_fixes(advice: &TrainerAdvice, torch: TorchVersion, style: &Style) -> String {
    let mut text = style.paint(Ink::Heading, "What to change, least impact first") + "\n";
    let (enough, not_enough): (Vec<_>, Vec<_>) = advice.fixes.iter().partition(|fix| fix.fits());
    for (index, fix) in enough.iter().take(MAX_FIXES).enumerate() {
        let head = format!("{}  {}", index + 1, words_of(fix, torch));
        text.push_str(&(style.paint(Ink::Fits, style.wrapped(&head, 0).trim_end()) + "\n"));
        text.push_str(&style.wrapped(&outcome(fix), 3));
    }
    text.push_str(&advice.obstacle.iter().map(|sentence| style.wrapped(&sentence.to_string(), 0)).collect::<String>());
    if !not_enough.is_empty() {
        text.push_str(&(style.paint(Ink::Quiet, "these help, and are not enough alone") + "\n"));
    }
    for fix in not_enough.iter().take(MAX_FIXES) {
        let line = format!("{}  saves {}", words_of(fix, torch), human_size(fix.saves_bytes));
        text.push_str(&style.wrapped(&line, 3));
    }
    text
}

/// What a fix of another trainer does to the memory, the result of the training and its time.
fn outcome(fix: &TrainerFix) -> String {
    let fits = if fix.room.fit == Fit::Narrow { "fits narrowly" } else { "fits" };
    let left = human_size(fix.room.headroom_bytes.unsigned_abs());
    let effect = match fix.effect {
        Effect::None => "the same training",
        Effect::Small => "nearly the same training",
        Effect::ChangesModel => "changes the training",
    };
    let time = if fix.is_slower { ", slower" } else { "" };
    let used = human_size(fix.device_used_bytes);
    format!("{effect}{time}; takes {used} and {fits}, {left} left. {}", fix.note())
}

/// The options of a fix, and the environment variable if needed.
fn words_of(fix: &TrainerFix, torch: TorchVersion) -> String {
    let expandable = Change::Switch(RunSwitch::ExpandableSegments);
    let variable = fix.expandable.then(|| expandable.environment(torch)).flatten();
    let variable = variable.map(|variable| format!("{variable} (planned by {})", expandable.argument()));
    fix.arguments().into_iter().chain(variable).collect::<Vec<_>>().join(" ")
}

/// Largest batch that fits, and remarks on larger ones.
fn batch_sizes(sizes: &BatchSizes, style: &Style) -> String {
    let largest = match (sizes.largest, sizes.may_fit.is_empty()) {
        (Some(largest), _) => format!("The largest batch_size that fits, all else unchanged: {largest}."),
        (None, false) => headroom_languages::english().word(text::NO_SURE_BATCH).to_owned(),
        (None, true) => "With nothing else changed, not even batch_size 1 fits.".to_owned(),
    };
    let more = sizes.more().into_iter().map(|sentence| style.wrapped(&sentence.to_string(), 0));
    std::iter::once(style.wrapped(&largest, 0)).chain(more).collect()
}

fn enough_row(rank: usize, fix: &Fix, plan: &Plan, style: &Style) -> String {
    let effect = fix.effect().text();
    let time = fix.step_time_ratio.map_or_else(String::new, |ratio| format!(", about {ratio:.2} x the time"));
    let left = human_size(fix.headroom_bytes.unsigned_abs());
    let head = format!("{rank}  {}", arguments(fix, plan));
    let body = format!("{effect}{time}, {left} left: {}", fix.note());
    let mut text = style.paint(Ink::Fits, style.wrapped(&head, 0).trim_end()) + "\n" + &style.wrapped(&body, 3);
    // Code is meant for copying, so it is not wrapped.
    for change in &fix.changes {
        if let Some(ByHand::Code(code)) = change.by_hand() {
            code.lines().for_each(|line| text.push_str(&format!("   {}\n", style.paint(Ink::Quiet, line))));
        }
    }
    text
}

/// A fix as arguments of train.py, followed by changes without a key, with the option to plan them, and the environment
/// variable if needed.
fn arguments(fix: &Fix, plan: &Plan) -> String {
    let mut words = Vec::new();
    for change in &fix.changes {
        words.push(match change {
            Change::Key(..) => change.argument(),
            Change::Switch(switch) => match change.environment(plan.request.machine.torch) {
                Some(variable) => format!("{variable} (planned by {})", change.argument()),
                None => format!("{} (planned by {})", switch.text(), change.argument()),
            },
        });
    }
    words.join(" ")
}
