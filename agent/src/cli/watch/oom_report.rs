//! Messages about a run that died of an out-of-memory error: the diagnosis and the fix.

use headroom_planner::advice::{Change, Fix, time_text};
use headroom_protocol::run::{Diagnosis, Wording};
use headroom_text::{self as text, LANGUAGES, Language, Text, units::human_size};

use crate::cli::style::Style;
use headroom_watch::oom_retry::RetryAdvice;

/// Formats the diagnosis, the best fix, and whether the run is restarted with it.
pub fn remedy(remedy: &RetryAdvice, wants_retry: bool, is_retried: bool) -> String {
    // The style is that of standard output, but this message goes to standard error.
    let style = Style { colour: false, ..Style::of_stdout() };
    let mut text = "\nheadroom: the run ran out of memory\n".to_owned();
    text.push_str(&style.wrapped(&remedy.explanation.to_string(), 0));
    if let Some(fix) = &remedy.fix {
        text.push_str(&style.wrapped(&format!("Best change: {}", outcome(fix)), 0));
        // The command is meant for copying, so it is not wrapped.
        text.push_str(&format!("  {}\n", line(remedy, fix)));
    }
    let last = match &remedy.retry {
        Ok(_) if is_retried => "headroom: starting it again with this change".to_owned(),
        Ok(_) if wants_retry => "headroom: not started again: it was tried often enough".to_owned(),
        Ok(_) => "`headroom watch --retry-with-fix` starts a run again with such a change.".to_owned(),
        Err(why) if wants_retry => format!("headroom: not started again: {why}"),
        Err(_) => return text,
    };
    text.push_str(&style.wrapped(&last, 0));
    text
}

/// Diagnosis for the history and the page.
pub fn diagnosis(remedy: &RetryAdvice) -> Diagnosis {
    Diagnosis {
        sentence: remedy.explanation.to_string(),
        change: remedy.fix.as_ref().map(outcome),
        command: remedy.fix.as_ref().map(|fix| line(remedy, fix)),
        others: LANGUAGES[1..].iter().map(|language| worded(remedy, language)).collect(),
    }
}

fn worded(remedy: &RetryAdvice, language: &Language) -> Wording {
    let table = headroom_languages::table(language.code);
    Wording {
        language: language.code.to_owned(),
        sentence: table.say(&remedy.explanation),
        change: remedy.fix.as_ref().map(|fix| table.say(&outcome_text(fix))),
    }
}

/// As [`outcome`], from translatable texts.
fn outcome_text(fix: &Fix) -> Text {
    let effect = fix.effect().text().into();
    let effect = match fix.step_time_ratio {
        Some(ratio) => text::and_also(effect, time_text(ratio)),
        None => effect,
    };
    text::and_also(effect, fix.outcome())
}

/// The command with a change, or only the change if the command accepts none.
fn line(remedy: &RetryAdvice, fix: &Fix) -> String {
    let words = || fix.changes.iter().map(Change::argument).collect::<Vec<_>>().join(" ");
    remedy.command.clone().unwrap_or_else(words)
}

/// Summary such as "the same training, about 1.05 x the time, 2.1 GiB left: why".
fn outcome(fix: &Fix) -> String {
    let time = fix.step_time_ratio.map_or_else(String::new, |ratio| format!(", about {ratio:.2} x the time"));
    let left = human_size(fix.headroom_bytes.unsigned_abs());
    format!("{}{time}, {left} left: {}", fix.effect().text(), fix.note())
}
