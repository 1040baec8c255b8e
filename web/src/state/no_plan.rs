//! Why there is no plan, in words, and the file that is missing.

use headroom_shared::nanogpt::{PastedKind, Severity, executed_line, from_pasted_text, with_file_below};

use super::{
    answer::{Answer, Reading},
    session::CONFIG_NAME,
};
use crate::text::{self, say, t};

/// The answer where there is no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoPlan {
    /// The sentence that answers.
    pub headline: String,
    /// The sentence after it.
    pub detail: String,
    /// The config file that has to be opened, by its name.
    pub unread: Option<String>,
}

impl NoPlan {
    /// The words for an answer; `None` where there is a plan.
    pub fn of(answer: &Answer) -> Option<Self> {
        if answer.plan().is_some() {
            return None;
        }
        let settings = &answer.resolved.settings;
        let no = |headline: String, detail: String| Some(Self { headline, detail, unread: None });
        if let Some(name) = settings.unread.first() {
            let headline = say(&text::no_plan_not_read(name.as_str()));
            return Some(Self { headline, detail: t(text::NOT_READ_DETAIL).to_owned(), unread: Some(name.clone()) });
        }
        match answer.reading {
            Reading::Foreign => return no(t(text::NOTHING_READ).to_owned(), t(text::NOTHING_READ_DETAIL).to_owned()),
            Reading::OutOfMemory => {
                return no(t(text::OUT_OF_MEMORY_READ).to_owned(), t(text::FOREIGN_OUT_OF_MEMORY).to_owned());
            }
            Reading::Empty | Reading::Run => {}
        }
        let keys: Vec<&str> = settings.unreadable().collect();
        if keys.is_empty() {
            let detail = answer.obstacle().map_or_else(|| t(text::NO_PLAN_DETAIL).to_owned(), |why| say(&why));
            return no(t(text::NO_PLAN).to_owned(), detail);
        }
        let mut errors = settings.problems.as_slice().iter().filter(|problem| problem.severity == Severity::Error);
        let detail = errors.next().map_or_else(String::new, |problem| match problem.line {
            0 => format!("{}: {}", problem.source, say(&problem.message)),
            line => format!("{line}:{}: {}", problem.column, say(&problem.message)),
        });
        no(say(&text::no_plan_unreadable(keys.join(", "))), detail)
    }
}

/// A text with that of a config which it names and which was not read. A file of another name is taken for it where
/// `is_meant`, as behind a button that names the config; else the file takes the place of the text.
pub fn with_file(text: &str, file_name: &str, file: String, is_meant: bool) -> String {
    let pasted = from_pasted_text(CONFIG_NAME, text);
    let unread = pasted.read().unread;
    let base = |path: &str| path.rsplit(['/', '\\']).next().unwrap_or_default().to_ascii_lowercase();
    let same = unread.iter().find(|name| base(name) == base(file_name));
    let Some(name) = same.or_else(|| unread.first().filter(|_| is_meant)) else { return file };
    match pasted.kind {
        PastedKind::Command => with_file_below(text, name, &file),
        // A config that executes another: Python reads its text in that place.
        _ => text.replacen(executed_line(name).trim_end(), file.trim_end(), 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::session::Session;

    fn no_plan(text: &str) -> NoPlan {
        NoPlan::of(&Answer::of_text(text)).expect("no plan")
    }

    #[test]
    fn a_config_that_was_not_read_is_named() {
        let found = no_plan("python train.py config/mine.py --batch_size=4");
        assert_eq!(found.headline, "No plan: config/mine.py was not read");
        assert_eq!(found.unread.as_deref(), Some("config/mine.py"));
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
    fn a_text_without_settings_has_no_plan() {
        for text in ["Segmentation fault (core dumped)", "hello", "mine = 3", "124M on a toaster", "<!doctype html>"] {
            assert_eq!(no_plan(text).headline, t(text::NOTHING_READ), "{text}");
        }
        assert_eq!(no_plan("CUDA out of memory. Tried to allocate 2 GiB").headline, t(text::OUT_OF_MEMORY_READ));
        for text in ["124M, batch 2", "batch_size = 2", "", "# only a comment"] {
            assert_eq!(NoPlan::of(&Answer::of_text(text)), None, "{text}");
        }
    }

    #[test]
    fn a_stock_config_is_planned_by_its_name() {
        let plan = |text: &str| Answer::of_text(text).plan().map(|plan| (plan.fits, plan.request.gpt.n_layer()));
        assert_eq!(plan("python train.py config/finetune_shakespeare.py"), Some((false, 48)));
        assert_eq!(plan("python train.py config/train_shakespeare_char.py"), Some((true, 6)));
    }

    #[test]
    fn an_opened_file_is_the_one_that_was_named() {
        for (text, edited) in [
            ("python train.py config/mine.py --n_layer=6", "python train.py config/mine.py --n_layer=6 --batch_size=2"),
            ("exec(open('config/mine.py').read())\nn_layer = 6\n", "batch_size = 2"),
        ] {
            let mut session = Session { text: text.into(), ..Session::default() };
            session.set_text(with_file(text, "MINE.py", "batch_size = 7\n".into(), false));
            let answer = Answer::of(&session);
            assert_eq!((answer.count("batch_size"), answer.count("n_layer")), (Some(7), Some(6)), "{}", session.text);
            assert!(answer.plan().is_some(), "{}", session.text);
            session.set_keys(&[("batch_size", headroom_shared::nanogpt::Value::Int(2))]);
            assert!(session.text.starts_with(edited), "{}", session.text);
            assert_eq!(Answer::of(&session).count("batch_size"), Some(2));
        }
        // Another file takes the place of the text, unless the button was for the missing one.
        let taken = |is_meant| with_file("python train.py mine.py", "other.py", "batch_size = 7\n".into(), is_meant);
        assert_eq!(taken(false), "batch_size = 7\n");
        assert!(taken(true).starts_with("python train.py mine.py"));
        assert!(Answer::of_text(&taken(true)).plan().is_some());
    }

    #[test]
    fn a_link_to_a_run_without_a_plan_has_none_either() {
        for text in ["python train.py config/mine.py", "compile = maybe", "hello there"] {
            let session = Session { text: text.into(), ..Session::default() };
            let opened = Session::open(&session.fragment(), None).expect("a link");
            assert!(NoPlan::of(&Answer::of(&opened.session)).is_some(), "{text}: {}", session.fragment());
        }
    }
}
