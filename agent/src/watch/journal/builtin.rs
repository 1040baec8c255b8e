//! What `headroom train` says of itself: its allocation, which is its plan, and why it ended.

use std::{ffi::OsString, path::Path};

use headroom_shared::{
    hardware::{context, reported},
    protocol::run::{Cause, PlanSummary},
    text::{self, Text},
};

use crate::{platform, train::run::NOT_SAVED, watch::planned::Card};

/// What a plan calls the one phase that such a run has.
const PHASE: &str = "training";
/// Characters of a last word that are kept.
const LAST_WORD_CHARS_MAX: usize = 1000;
/// What begins an error of this program's.
const ERROR: &str = "headroom: ";

/// What is known of a run of `headroom train`.
#[derive(Debug, Default)]
pub struct Builtin {
    /// Whether the run is one.
    pub is: bool,
    /// It said that it computes on the CPU.
    pub is_on_cpu: bool,
    /// What it allocates.
    pub bytes: Option<u64>,
    /// What it computes again.
    pub recompute: Option<String>,
    /// What was told of that.
    told: Option<PlanSummary>,
}

impl Builtin {
    /// Of a command: whether it is `train` of this program, under whatever name, or of one that is called as ours is.
    pub fn of(command: &[OsString]) -> Self {
        let is_train = command.get(1).is_some_and(|word| word == "train");
        let is_ours = |program: &OsString| {
            Path::new(program).file_stem().is_some_and(|name| name == "headroom") || platform::is_this_program(program)
        };
        Self { is: is_train && command.first().is_some_and(is_ours), ..Self::default() }
    }

    /// Its plan, where it is new: on a card, the context besides. None before the allocation and the card are known.
    pub fn plan(&mut self, card: Option<&Card>) -> Option<PlanSummary> {
        let bytes = self.bytes?;
        let (name, context_bytes) = match card {
            _ if self.is_on_cpu => ("CPU".to_owned(), 0),
            Some(card) => on_card(card),
            None => return None,
        };
        let peak_bytes = bytes.saturating_add(context_bytes);
        let plan = PlanSummary {
            card: name,
            // It ends at once where it does not.
            fits: true,
            peak_bytes,
            max_memory_allocated: bytes,
            max_memory_reserved: bytes,
            phases: vec![(PHASE.to_owned(), peak_bytes)],
            is_builtin: true,
            recompute: self.recompute.clone(),
        };
        (self.told.as_ref() != Some(&plan)).then(|| {
            self.told = Some(plan.clone());
            plan
        })
    }
}

fn on_card(card: &Card) -> (String, u64) {
    let (name, device) = match card {
        Card::Named(name) => (name.clone(), headroom_shared::hardware::find(name).ok()),
        Card::Measured { name, total_bytes } => (name.clone(), reported(name, *total_bytes)),
    };
    let Some(device) = device else { return (name, 0) };
    let loading = context::ModuleLoading::Lazy;
    (device.name.to_string(), context::context_bytes(device.compute_capability, device.sm_count, loading).bytes)
}

/// The last words of a run of ours that failed: its error, with what to try instead.
pub fn last_words(tail: &str) -> Option<String> {
    let at = tail.match_indices(ERROR).filter(|(at, _)| *at == 0 || tail[..*at].ends_with('\n')).last()?.0;
    let words = tail[at + ERROR.len()..].trim();
    (!words.is_empty()).then(|| words.chars().take(LAST_WORD_CHARS_MAX).collect())
}

/// What last words say that a run died of, by the texts that they are made of and not by their wording.
pub fn cause(words: &str) -> Option<Cause> {
    let too_little = [
        text::shortage_plan("", "", "", "", "", ""),
        text::shortage_allocation("", "", "", "", "", ""),
        text::card_no_room("", ""),
        text::card_out_of_memory("", ""),
        text::card_ran_out(""),
    ];
    let diverged = [text::run_diverged("", "", ""), text::run_forgot("", "", "", "")];
    let texts = text::texts_of(words);
    let says = |one_of: &[Text]| texts.iter().any(|text| one_of.iter().any(|other| text.is(other)));
    if says(&too_little) {
        return Some(Cause::OutOfGpuMemory);
    }
    says(&diverged).then_some(Cause::Diverged)
}

/// Whether it said that it was stopped, by the same.
pub fn says_stopped(tail: &str) -> bool {
    let stopped = [
        Text::from(text::STOPPED_SAVED),
        text::STOPPED_UNBEGUN.into(),
        text::stopped_unsaved(""),
        text::STOPPED_UNSAVED_NONE.into(),
    ];
    text::texts_of(tail).iter().any(|text| stopped.iter().any(|other| text.is(other)))
}

/// The iteration of a checkpoint that could not be saved, and why, where a line says that.
pub fn not_saved(line: &str) -> Option<(u64, &str)> {
    let (iter, why) = line.strip_prefix(NOT_SAVED)?.split_once(": ")?;
    let shown = why.char_indices().nth(LAST_WORD_CHARS_MAX).map_or(why, |(end, _)| &why[..end]);
    Some((iter.parse().ok()?, shown.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_told_once_and_when_its_card_is_known() {
        let mut builtin = Builtin { is: true, bytes: Some(1 << 30), ..Builtin::default() };
        assert_eq!(builtin.plan(None), None);
        let card = Card::Measured { name: "NVIDIA GeForce RTX 4070".to_owned(), total_bytes: Some(12 << 30) };
        let plan = builtin.plan(Some(&card)).expect("it is known");
        assert_eq!((&*plan.card, plan.is_builtin, plan.max_memory_allocated), ("GeForce RTX 4070", true, 1 << 30));
        assert!(plan.peak_bytes > 1 << 30 && plan.phases == [("training".to_owned(), plan.peak_bytes)]);
        assert_eq!(builtin.plan(Some(&card)), None);
        let mut on_cpu = Builtin { is: true, is_on_cpu: true, bytes: Some(7), ..Builtin::default() };
        assert_eq!(on_cpu.plan(None).map(|plan| (plan.card, plan.peak_bytes)), Some(("CPU".to_owned(), 7)));
    }

    #[cfg(unix)]
    #[test]
    fn this_program_is_known_under_any_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let this = std::env::current_exe().expect("a program");
        let [link, renamed, other] = ["hr", "hr-2", "other"].map(|name| folder.path().join(name));
        std::os::unix::fs::symlink(&this, &link).expect("a link");
        // Another name of the same file, where the file system has such.
        let has_names = std::fs::hard_link(&this, &renamed).is_ok();
        std::fs::write(&other, "").expect("a file");
        let is = |program: &Path, word: &str| Builtin::of(&[program.into(), word.into()]).is;
        assert!(is(&this, "train") && is(&link, "train") && (!has_names || is(&renamed, "train")));
        assert!(!is(&this, "sample") && !is(&other, "train") && !is(&folder.path().join("none"), "train"));
        assert!(is(Path::new("headroom"), "train"), "as it is called");
        assert!(!is(Path::new("python"), "train") && !Builtin::of(&[]).is);
    }

    #[test]
    fn what_is_not_saved_says_which_and_why() {
        let line = format!("{NOT_SAVED}100: no space left on device; make room");
        assert_eq!(not_saved(&line), Some((100, "no space left on device; make room")));
        assert_eq!(not_saved(&format!("{NOT_SAVED}x: y")), None);
        assert_eq!(not_saved("saving checkpoint to out"), None);
    }

    /// Every sentence of an end is known, in whichever words it is said.
    #[test]
    fn an_end_is_known_by_its_text() {
        let size = text::size(3 << 30);
        let short = || text::shortage_plan(text::size(9), text::size(8), "a card", text::size(7), text::size(6), "");
        for (words, died_of) in [
            (text::shortage_held(text::card_no_room("a card", size), "process 7"), Some(Cause::OutOfGpuMemory)),
            (
                text::run_not_computed(7_u64, text::card_ran_out("cuLaunchKernel at a.rs:7: 2")),
                Some(Cause::OutOfGpuMemory),
            ),
            (text::run_not_computed(7_u64, "cuLaunchKernel at a.rs:7: 2"), None),
            (text::run_diverged(text::DIVERGED_LOSS, 7_u64, "NaN"), Some(Cause::Diverged)),
            (text::run_forgot("7.0", 200_u64, "3.3", 900_u64), Some(Cause::Diverged)),
            (text::host_too_small(text::size(9), text::size(8)), None),
        ] {
            assert_eq!(cause(&format!("{words}\n\nhint: {}", text::TRY_SLOWER)), died_of, "{words}");
        }
        assert_eq!(cause(&short().to_string()), None, "it does not say what is missing");
        assert_eq!(cause("the run has diverged, says another; 7 GiB of it may be taken ("), None);
        for (said, is_end) in [
            (text::STOPPED_SAVED.to_string(), true),
            (text::STOPPED_UNBEGUN.to_string(), true),
            (text::stopped_unsaved(7_u64).to_string(), true),
            (text::STOPPED_UNSAVED_NONE.to_string(), true),
            ("Done. Let it write:".to_owned(), false),
        ] {
            assert_eq!(says_stopped(&format!("iter 3: loss 1.0, time 1.00ms\n\n{said}\n  more\n")), is_end, "{said}");
        }
    }

    #[test]
    fn the_last_error_is_the_last_word() {
        let tail = "iter 1: loss 2.0\nheadroom: first\nx headroom: no\nheadroom: it does not fit\n\nhint: less\n";
        assert_eq!(last_words(tail).as_deref(), Some("it does not fit\n\nhint: less"));
        assert_eq!(last_words("headroom: \n"), None);
        assert_eq!(last_words("iter 1\n"), None);
    }
}
