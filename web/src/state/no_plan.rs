//! The reason for the absence of a plan, in words, and the missing file.

use headroom_planner::nanogpt::{PastedKind, Problem, Severity, UnreadFile, with_file_below, with_file_in_log};

use super::{
    answer::{PlannedSession, Reading},
    gpu::{GpuDraft, Meaning, is_known},
    parse,
    sentence::sentence,
};
use crate::text::{self, Key, say, t};

/// The words shown instead of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoPlan {
    /// The first sentence.
    pub headline: String,
    /// The second sentence.
    pub detail: String,
    /// The name of the config file that has to be opened.
    pub unread: Option<String>,
}

impl NoPlan {
    /// The words while the text in the GPU field is not the selected GPU.
    pub fn of_draft(GpuDraft { meaning, current }: &GpuDraft) -> Self {
        let detail = match meaning {
            Meaning::One(one) => say(&text::no_gpu_yet_detail(one.as_str(), current.as_str())),
            Meaning::Several | Meaning::Unknown if is_known(current) => say(&text::no_gpu_yet_keep(current.as_str())),
            Meaning::Several | Meaning::Unknown => String::new(),
        };
        Self { headline: t(text::NO_GPU_YET).to_owned(), detail, unread: None }
    }

    /// The words while a field of the form holds an invalid text.
    pub fn of_fault(field: &str, expected: Key) -> Self {
        Self { headline: say(&text::no_plan_unreadable(field)), detail: text::fault(expected), unread: None }
    }

    /// The words for an answer; `None` if there is a plan.
    pub fn of(answer: &PlannedSession) -> Option<Self> {
        if answer.plan().is_some() {
            return None;
        }
        let settings = &answer.resolved.settings;
        let no = |headline: String, detail: String| Some(Self { headline, detail, unread: None });
        if let Some(UnreadFile { name, .. }) = settings.unread.first() {
            let headline = say(&text::no_plan_not_read(name.as_str()));
            return Some(Self { headline, detail: t(text::NOT_READ_DETAIL).to_owned(), unread: Some(name.clone()) });
        }
        match answer.reading {
            Reading::Foreign if answer.kind == PastedKind::Unsupported => {
                let why = settings.problems.as_slice().first().map(|problem| problem.message.clone());
                let headline = why.map_or_else(|| t(text::NOTHING_READ).to_owned(), |why| say(&text::no_plan_as(why)));
                return no(headline, t(text::NOTHING_READ_DETAIL).to_owned());
            }
            Reading::Foreign => {
                let is_full_width = |message: &String| message.contains(t(text::FULL_WIDTH));
                let described = |problem| place(problem) + &say(&problem.message);
                let detail = settings.problems.as_slice().iter().map(described).find(is_full_width);
                let detail = detail.unwrap_or_else(|| t(text::NOTHING_READ_DETAIL).to_owned());
                return no(t(text::NOTHING_READ).to_owned(), detail);
            }
            Reading::OutOfMemory => {
                return no(t(text::OUT_OF_MEMORY_READ).to_owned(), t(text::FOREIGN_OUT_OF_MEMORY).to_owned());
            }
            Reading::Empty | Reading::Run => {}
        }
        let keys: Vec<&str> = settings.unreadable().collect();
        if keys.is_empty() && answer.gpu_fault().is_some() {
            // The GPU field shows the error.
            return no(t(text::NO_GPU_YET).to_owned(), String::new());
        }
        if keys.is_empty() {
            if let Some(problem) = settings.problems.first_stop() {
                let remedy = problem.hint.clone().unwrap_or_else(|| text::CORRECT_IT.into());
                return no(say(&text::no_plan_as(problem.message.clone())), place(problem) + &say(&remedy));
            }
            let detail = answer.obstacle().map_or_else(|| t(text::NO_PLAN_DETAIL).to_owned(), |why| say(&why));
            return no(t(text::NO_PLAN).to_owned(), detail);
        }
        let any_key = text::may_set_any("");
        if let Some(problem) = settings.problems.as_slice().iter().find(|problem| problem.message.is(&any_key)) {
            let hint = problem.hint.clone().map_or_else(String::new, |hint| sentence(&hint));
            return no(say(&text::no_plan_as(problem.message.clone())), hint);
        }
        let mut errors = settings.problems.as_slice().iter().filter(|problem| problem.severity == Severity::Error);
        let detail = errors.next().map_or_else(String::new, |problem| {
            let message = place(problem) + &say(&problem.message);
            match &problem.hint {
                Some(hint) => say(&text::with_hint(text::verbatim(message), text::verbatim(sentence(hint)))),
                None => message,
            }
        });
        no(say(&text::no_plan_unreadable(keys.join(", "))), detail)
    }
}

/// The place of a problem before its message: line and column, or the argument.
fn place(problem: &Problem) -> String {
    match problem.line {
        0 => format!("{}: ", problem.source),
        line => format!("{line}:{}: ", problem.column),
    }
}

/// A text with the content of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct WithFile {
    /// The text. `None` if the file replaces it.
    pub text: Option<String>,
    /// The config that the text names, if the file has another name.
    pub other_name: Option<String>,
}

/// Inserts the content of a file into a text that names it as an unread config. With `is_meant`, a file of another name
/// is accepted too, as behind a button that names the config. Otherwise, such a file replaces the text.
pub fn with_file(text: &str, file_name: &str, file: &str, is_meant: bool) -> WithFile {
    let pasted = parse(text);
    let unread = pasted.read().unread;
    let base = |path: &str| path.rsplit(['/', '\\']).next().unwrap_or_default().to_ascii_lowercase();
    let same = unread.iter().find(|unread| base(&unread.name) == base(file_name));
    let Some(UnreadFile { name, statement, .. }) = same.or_else(|| unread.first().filter(|_| is_meant)) else {
        return WithFile { text: None, other_name: None };
    };
    let text = match pasted.kind {
        // An argument of a command.
        PastedKind::Command if statement.is_empty() => with_file_below(text, name, file),
        PastedKind::Log if statement.is_empty() => with_file_in_log(text, name, file),
        // A config that executes another: Python runs its text at that point.
        _ => text.replacen(statement.as_str(), file.trim_end(), 1),
    };
    WithFile { text: Some(text), other_name: same.is_none().then(|| name.clone()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::session::Session;
    use headroom_planner::session::Options;

    fn no_plan(text: &str) -> NoPlan {
        NoPlan::of(&PlannedSession::of_text(text)).expect("no plan")
    }

    #[test]
    fn a_config_that_was_not_read_is_named() {
        let found = no_plan("python train.py config/mine.py --batch_size=4");
        assert_eq!(found.headline, "No plan: config/mine.py was not read");
        assert_eq!(found.unread.as_deref(), Some("config/mine.py"));
    }

    #[test]
    fn full_width_assignment_is_located() {
        let found = no_plan("batch_size\u{ff1d}64\n");
        assert_eq!(found.headline, "No plan: no settings found");
        assert!(found.detail.starts_with("1:11: a full-width character"), "{}", found.detail);
    }

    #[test]
    fn a_log_without_the_text_of_its_config_has_no_plan() {
        let command = "python train.py config/my_config.py --batch_size=8\n";
        let (file, argument) = ("Overriding config with config/my_config.py:\n", "Overriding: batch_size = 8\n");
        let (weights, parameters) =
            ("Initializing from OpenAI GPT-2 weights: gpt2-xl\n", "number of parameters: 1555.97M\n");
        for text in [
            format!("{command}{argument}"),
            format!("{command}{file}{argument}"),
            format!("{file}{argument}"),
            format!("{argument}{file}"),
            format!("{command}{argument}{parameters}"),
            format!("{file}{argument}{weights}{parameters}"),
        ] {
            let found = no_plan(&text);
            assert_eq!(found.headline, "No plan: config/my_config.py was not read", "{text}");
            let session = Session { text: text.clone(), ..Session::default() };
            let opened = Session::open(&session.fragment(), None).expect("a link").session;
            assert!(PlannedSession::of(&opened).plan().is_none(), "{}", opened.text);
            // The opened file is what nanoGPT would have printed.
            let read =
                with_file(&text, "my_config.py", "batch_size = 4\nblock_size = 512\n", false).text.expect("a name");
            let answer = PlannedSession::of_text(&read);
            let batch_size = if text.ends_with(file) { 4 } else { 8 };
            assert_eq!(
                (answer.count("batch_size"), answer.count("block_size")),
                (Some(batch_size), Some(512)),
                "{read}"
            );
        }
        let printed = format!("{command}{file}n_layer = 6\n\n{argument}");
        assert_eq!(PlannedSession::of_text(&printed).count("n_layer"), Some(6));
        assert_eq!(NoPlan::of(&PlannedSession::of_text(&printed)), None);
        // Stock configs are known.
        let stock =
            PlannedSession::of_text("python train.py config/train_shakespeare_char.py\nOverriding: n_head = 4\n");
        assert!(stock.plan().is_some_and(|plan| plan.request.gpt.n_layer() == 6 && plan.request.gpt.n_head() == 4));
    }

    #[test]
    fn a_printed_number_of_parameters_is_that_of_the_plan() {
        let other = "Overriding: batch_size = 8\nnumber of parameters: 1555.97M\n";
        let found = no_plan(other);
        assert_eq!(found.headline, "No plan: number of parameters is 123.59M, but it must be 1555.97M");
        let session = Session { text: other.into(), ..Session::default() };
        let opened = Session::open(&session.fragment(), None).expect("a link").session;
        assert!(PlannedSession::of(&opened).plan().is_none(), "{}", opened.text);
        for (text, n_layer) in [
            ("Overriding: batch_size = 8\nnumber of parameters: 123.59M\n", 12),
            (
                "Overriding: batch_size = 8\nInitializing from OpenAI GPT-2 weights: gpt2-xl\nnumber of parameters: 1555.97M\n",
                48,
            ),
        ] {
            let answer = PlannedSession::of_text(text);
            assert_eq!(answer.plan().map(|plan| plan.request.gpt.n_layer()), Some(n_layer), "{text}");
        }
    }

    #[test]
    fn a_value_that_cannot_be_read_is_named_with_its_line() {
        for (text, key, place) in [
            ("bias = True\nbatch_size = 99999999999999999999", "batch_size", "2:14: "),
            ("compile = maybe", "compile", "1:11: "),
            ("python train.py --compile=maybe", "compile", "--compile=maybe: "),
        ] {
            let found = no_plan(text);
            assert_eq!(found.headline, format!("No plan: {key} cannot be read"), "{text}");
            assert!(found.detail.starts_with(place), "{}", found.detail);
        }
    }

    #[test]
    fn error_is_named_with_its_place_and_remedy() {
        for (text, headline, detail) in [
            (
                "batch_size = 4\nn_layer = 12.0",
                "n_layer is the float 12.0, but nanoGPT needs an int",
                "2:11: correct it to get a plan",
            ),
            (
                "python train.py --foo=1",
                "nanoGPT stops: ValueError: Unknown config key: foo",
                "--foo=1: correct it to get a plan",
            ),
            (
                "python train.py --n_layer=12.0",
                "nanoGPT stops: n_layer must be of type int, but this is of type float",
                "--n_layer=12.0: --n_layer=12",
            ),
            (
                "python train.py --vocab_size=65",
                "nanoGPT stops: ValueError: Unknown config key: vocab_size",
                "--vocab_size=65: nanoGPT reads the vocabulary size from the data set's meta.pkl",
            ),
            (
                "python main.py",
                "main.py is not nanoGPT's train.py; Headroom plans runs of nanoGPT",
                "Paste a nanoGPT config.py",
            ),
        ] {
            let found = no_plan(text);
            assert_eq!(found.headline, format!("No plan: {headline}"), "{text}");
            assert!(found.detail.starts_with(detail), "{text}: {}", found.detail);
            assert_eq!(found.unread, None, "{text}");
        }
        let found = no_plan("python train.py --batch_size 64");
        assert_eq!(found.headline, "No plan: batch_size cannot be read");
        assert!(found.detail.ends_with("this argument has no `=`. --batch_size=64"), "{}", found.detail);
    }

    #[test]
    fn statement_that_may_change_any_setting_is_quoted() {
        let found = no_plan("batch_size = 8\nglobals().update(cfg)\n");
        assert_eq!(found.headline, "No plan: `globals().update(cfg)` may change any setting");
        assert!(found.detail.starts_with("Write its assignments here"), "{}", found.detail);
        let found = no_plan("from base import *\nbatch_size = 8\n");
        assert_eq!(found.headline, "No plan: base.py was not read");
        assert_eq!(found.unread.as_deref(), Some("base.py"));
    }

    #[test]
    fn a_text_without_settings_has_no_plan() {
        for text in
            ["Segmentation fault (core dumped)", "hello", "mine = 3", "[1,2,3]", "124M on a toaster", "<!doctype html>"]
        {
            assert_eq!(no_plan(text).headline, t(text::NOTHING_READ), "{text}");
            // The embed opens the text itself, a link what was read from it.
            let given = headroom_planner::link::encode_text(text, &Options::default());
            for fragment in [given, Session { text: text.into(), ..Session::default() }.fragment()] {
                let opened = Session::open(&fragment, None).expect("a link");
                assert!(PlannedSession::of(&opened.session).plan().is_none(), "{text}: {fragment}");
            }
        }
        assert_eq!(no_plan("CUDA out of memory. Tried to allocate 2 GiB").headline, t(text::OUT_OF_MEMORY_READ));
        for text in ["124M, batch 2", "batch_size = 2", "", "# only a comment"] {
            assert_eq!(NoPlan::of(&PlannedSession::of_text(text)), None, "{text}");
        }
    }

    #[test]
    fn a_config_of_another_program_has_no_plan_and_says_what_it_is() {
        let llama = "{\"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 32000}";
        let found = no_plan(llama);
        assert_eq!(found.headline, "No plan: this is a Llama config; Headroom plans nanoGPT models");
        assert!(no_plan("batch_size: 8\nn_layer: 6\n").headline.starts_with("No plan: this is YAML"));
    }

    #[test]
    fn a_stock_config_is_planned_by_its_name() {
        let plan =
            |text: &str| PlannedSession::of_text(text).plan().map(|plan| (plan.fits, plan.request.gpt.n_layer()));
        assert_eq!(plan("python train.py config/finetune_shakespeare.py"), Some((false, 48)));
        assert_eq!(plan("python train.py config/train_shakespeare_char.py"), Some((true, 6)));
    }

    #[test]
    fn an_opened_file_is_the_one_that_was_named() {
        for (text, edited) in [
            ("python train.py config/mine.py --n_layer=6", "python train.py config/mine.py --n_layer=6 --batch_size=2"),
            ("exec(open('config/mine.py').read())\nn_layer = 6\n", "batch_size = 2"),
            ("exec( open(\"config/mine.py\").read() )\nn_layer = 6\n", "batch_size = 2"),
            ("from config.mine import *  # shared\nn_layer = 6\n", "batch_size = 2"),
        ] {
            let mut session = Session { text: text.into(), ..Session::default() };
            let with = with_file(text, "MINE.py", "batch_size = 7\n", false);
            assert_eq!(with.other_name, None);
            session.set_text(with.text.expect("a name"));
            let answer = PlannedSession::of(&session);
            assert_eq!((answer.count("batch_size"), answer.count("n_layer")), (Some(7), Some(6)), "{}", session.text);
            assert!(answer.plan().is_some(), "{}", session.text);
            session.set_keys(&[("batch_size", headroom_planner::nanogpt::Value::Int(2))]);
            assert!(session.text.starts_with(edited), "{}", session.text);
            assert_eq!(PlannedSession::of(&session).count("batch_size"), Some(2));
        }
        // Another file replaces the text, unless it was opened by the missing file's button.
        let taken = |is_meant| with_file("python train.py mine.py", "other.py", "batch_size = 7\n", is_meant);
        assert_eq!(taken(false), WithFile { text: None, other_name: None });
        let WithFile { text: Some(text), other_name: Some(named) } = taken(true) else { panic!("it was meant") };
        assert!(named == "mine.py" && text.starts_with("python train.py mine.py"), "{text}");
        assert!(PlannedSession::of_text(&text).plan().is_some());
    }

    #[test]
    fn a_link_to_a_run_without_a_plan_has_none_either() {
        for text in [
            "python train.py config/mine.py",
            "compile = maybe",
            "learning_rate = maybe",
            "bach_size = 64",
            "hello there",
        ] {
            let session = Session { text: text.into(), ..Session::default() };
            let opened = Session::open(&session.fragment(), None).expect("a link");
            assert!(NoPlan::of(&PlannedSession::of(&opened.session)).is_some(), "{text}: {}", session.fragment());
        }
    }

    #[test]
    fn a_link_to_a_fork_s_key_has_the_key_and_no_plan() {
        let session = Session { text: "bach_size = 64  # mine\n".into(), ..Session::default() };
        let link = headroom_planner::link::decode(&session.fragment());
        assert_eq!(link.config, "bach_size = 64\n");
        assert!(link.settings().found_nothing());
    }
}
