//! What the page says of a pasted message.

use headroom_shared::{
    nanogpt::{Severity, Source, from_pasted_text},
    oom::{Agreement, Diagnosis, Kind, Match, diagnose, shape},
    session::Options,
};

use super::{
    answer::Reading,
    excerpt,
    fixes::{Rows, rows_of},
    format,
    session::{CONFIG_NAME, Session},
};
use crate::text::{self, say, t};

/// Who holds a part of the card.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Its place among the bands' colours.
    pub band: &'static str,
    /// Who.
    pub label: &'static str,
    /// How much.
    pub bytes: u64,
}

/// A tensor it may be about.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Name, shape and dtype.
    pub tensor: String,
    /// Where in the run.
    pub phase: &'static str,
    /// Whether the figures agree to the digit.
    pub exact: bool,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shown {
    /// What it means, in one or two sentences.
    pub sentence: String,
    /// How well the run agrees, in a word; empty without a config.
    pub agreement: &'static str,
    /// The message as it was found.
    pub message: String,
    /// How many messages there are, where there are several, and which this is.
    pub several: String,
    /// What is wrong with the config.
    pub problems: Vec<String>,
    /// The card, from left to right.
    pub parts: Vec<Part>,
    /// The card in bytes, and what is asked for beyond what is free.
    pub card_bytes: u64,
    /// What is missing.
    pub missing_bytes: u64,
    /// The tensors, the most probable first.
    pub candidates: Vec<Candidate>,
    /// What to change, where the run is known.
    pub fixes: Option<Rows>,
    /// The config file that has to be opened, by its name.
    pub unread: Option<String>,
    /// The run on the card of the message, for the calculator; `None` without a config.
    pub session: Option<Session>,
}

/// Diagnoses; `None` for an empty text. `options` are of the run that came along from the calculator; the message's GPU
/// counts, not theirs.
pub fn shown(pasted: &str, config: &str, options: &Options) -> Option<Shown> {
    if pasted.trim().is_empty() {
        return None;
    }
    // A text without a setting would be a run of train.py's defaults, which nobody asked about.
    let is_run = Reading::of_text(config) == Reading::Run;
    let given: Vec<Source> = if is_run { from_pasted_text(CONFIG_NAME, config).sources } else { vec![] };
    let is_refused = !is_run && !config.trim().is_empty();
    let diagnosis = diagnose(pasted, &given, options, false);
    let message = diagnosis.message();
    let explanation = &diagnosis.explanation;
    let session = session(&diagnosis, if is_run { config } else { "" });
    let refused = is_refused.then(|| t(text::CONFIG_WITHOUT_SETTINGS).to_owned());
    let fixes = match (&explanation.plan, &diagnosis.resolved) {
        (Some(plan), Some(_)) => {
            let mut rows = rows_of(plan, &diagnosis.advice);
            if diagnosis.advises_another_run() {
                rows.lead = format!("{} {}", t(text::FIXES_OF_THE_PLAN), rows.lead);
            }
            Some(rows)
        }
        _ => None,
    };
    Some(Shown {
        sentence: say(&explanation.text),
        agreement: match explanation.agreement {
            Some(Agreement::Exact) => t(text::AGREES_EXACTLY),
            Some(Agreement::Close) => t(text::AGREES_CLOSELY),
            Some(Agreement::None) => t(text::AGREES_NOT),
            None => "",
        },
        message: message.map(|message| message.text.clone()).unwrap_or_default(),
        several: match diagnosis.report.n_messages {
            0 | 1 => String::new(),
            n if diagnosis.explains_last => say(&text::several_messages_last(n)),
            n => say(&text::several_messages(n)),
        },
        problems: refused.into_iter().chain(problems(&diagnosis)).collect(),
        parts: parts(&diagnosis),
        card_bytes: explanation.arithmetic.total.unwrap_or(0),
        missing_bytes: explanation.arithmetic.missing.unwrap_or(0),
        candidates: explanation.matches.iter().map(candidate).collect(),
        fixes,
        unread: diagnosis.resolved.as_ref().and_then(|resolved| resolved.settings.unread.first().cloned()),
        session,
    })
}

/// Whether a config would say more.
pub fn wants_config(shown: &Shown) -> bool {
    shown.agreement.is_empty() && !shown.candidates.is_empty()
}

/// What is wrong with the config, where something is.
fn problems(diagnosis: &Diagnosis) -> Vec<String> {
    let Some(resolved) = &diagnosis.resolved else { return vec![] };
    let of_text = resolved.settings.problems.as_slice().iter();
    let of_text = of_text.filter(|problem| problem.severity == Severity::Error).map(|problem| {
        let place =
            if problem.line > 0 { format!("{}:{}", problem.line, problem.column) } else { problem.source.clone() };
        format!("{place}: {}", say(&problem.message))
    });
    let of_run = resolved.findings.iter().filter(|finding| finding.severity == Severity::Error);
    of_text
        .chain(of_run.map(|finding| format!("{}: {}", finding.key, say(&finding.message))))
        .take(MAX_PROBLEMS)
        .collect()
}

/// More than these nobody reads at once.
const MAX_PROBLEMS: usize = 5;

fn candidate(found: &Match) -> Candidate {
    Candidate {
        tensor: say(&text::tensor(found.tensor.clone(), shape(&found.shape), found.dtype.name())),
        phase: found.phase.map_or("", |phase| t(phase.text_in())),
        exact: found.exact,
    }
}

fn parts(diagnosis: &Diagnosis) -> Vec<Part> {
    let sums = &diagnosis.explanation.arithmetic;
    if sums.total.is_none() || diagnosis.message().is_none_or(|message| message.kind != Kind::Pytorch) {
        return vec![];
    }
    let others = if sums.context.is_some() { t(text::OTHERS_BAND) } else { t(text::OTHERS_AND_CONTEXT) };
    let all = [
        ("band-0", others, sums.others),
        ("band-1", t(text::CONTEXT_BAND), sums.context),
        ("band-7", t(text::ALLOCATED), sums.allocated),
        ("band-8", t(text::UNALLOCATED), sums.unallocated),
        ("band-free", t(text::FREE), sums.free),
    ];
    let part = |(band, label, bytes): (&'static str, &'static str, Option<u64>)| {
        bytes.filter(|bytes| *bytes > 0).map(|bytes| Part { band, label, bytes })
    };
    all.into_iter().filter_map(part).collect()
}

/// The run as the calculator opens it.
fn session(diagnosis: &Diagnosis, config: &str) -> Option<Session> {
    let resolved = diagnosis.resolved.as_ref()?;
    // Links to the calculator read the text several times: a long one goes along by its settings.
    let by_settings = config.trim().is_empty() || excerpt::is_long(config);
    let text = if by_settings { resolved.settings.to_config() } else { config.to_owned() };
    Some(Session { text, options: diagnosis.options.clone() })
}

/// A part in words, for the bar's legend.
pub fn part_words(part: &Part) -> String {
    format!("{} {}", part.label, format::size(part.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total \
        capacity of 11.69 GiB of which 2.68 GiB is free. Including non-PyTorch memory, this process has 7.04 GiB memory in \
        use. Of the allocated memory 6.78 GiB is allocated by PyTorch, and 73.00 MiB is reserved by PyTorch but unallocated.";

    #[test]
    fn a_message_alone_has_candidates_and_asks_for_the_config() {
        let shown = shown(MESSAGE, "", &Options::default()).expect("an answer");
        assert!(wants_config(&shown) && shown.fixes.is_none() && shown.session.is_none());
        assert_eq!(shown.candidates[0].tensor, "logits (65536, 50304) bfloat16");
        assert_eq!(shown.parts.iter().map(|part| part.bytes).sum::<u64>(), shown.card_bytes);
    }

    #[test]
    fn with_its_config_it_is_explained_to_the_digit() {
        let shown = shown(MESSAGE, "batch_size = 64\ngradient_accumulation_steps = 1\n", &Options::default())
            .expect("an answer");
        assert_eq!(shown.agreement, t(text::AGREES_EXACTLY));
        let session = shown.session.expect("a run");
        assert_eq!(session.options.gpu, "GeForce RTX 4070");
        assert!(shown.fixes.is_some_and(|fixes| fixes.fixes[0].fits));
    }

    #[test]
    fn a_description_is_understood_or_refused() {
        let understood = shown(MESSAGE, "124M, batch 64", &Options::default()).expect("an answer");
        assert_eq!(understood.agreement, t(text::AGREES_EXACTLY), "{}", understood.sentence);
        let refused = shown(MESSAGE, "my run on a toaster", &Options::default()).expect("an answer");
        assert_eq!(refused.problems, [t(text::CONFIG_WITHOUT_SETTINGS)]);
        assert!(refused.fixes.is_none() && refused.agreement.is_empty() && refused.session.is_none());
    }

    #[test]
    fn a_config_that_was_not_read_is_judged_by_no_defaults() {
        let shown =
            shown(MESSAGE, "python train.py config/mine.py --batch_size=64", &Options::default()).expect("an answer");
        assert_eq!(shown.unread.as_deref(), Some("config/mine.py"));
        assert!(shown.fixes.is_none() && shown.agreement.is_empty());
        assert!(shown.problems[0].contains("config/mine.py"), "{:?}", shown.problems);
    }

    #[test]
    fn nothing_pasted_is_nothing_shown() {
        assert_eq!(shown(" \n", "", &Options::default()), None);
    }
}
