//! Changes to nanoGPT's code that a session's run assumes, and the comment that names them in a text.

use headroom_shared::{
    advice::{CodeChange, needs_text},
    nanogpt::{PastedKind, from_pasted_text},
    plan::Plan,
    session::resolve_settings,
};

use super::{
    edit,
    session::{CONFIG_NAME, Session},
};
use crate::text::{say, table};

/// How the comment begins, in every language, so that it can be found and replaced.
const COMMENT: &str = "# headroom (code): ";

/// The changes that a plan assumes.
pub fn of_plan(plan: &Plan) -> Vec<CodeChange> {
    CodeChange::needed_by(&plan.request.train)
}

/// The changes that a session's run assumes; empty where it comes to no run.
pub fn of_session(session: &Session) -> Vec<CodeChange> {
    let settings = from_pasted_text(CONFIG_NAME, &session.text).read();
    let request = resolve_settings(settings, &session.options).request;
    request.map(|request| CodeChange::needed_by(&request.train)).unwrap_or_default()
}

/// The comment that names the changes, with its line end; empty without changes.
pub fn comment(changes: &[CodeChange]) -> String {
    if changes.is_empty() {
        return String::new();
    }
    format!("{COMMENT}{}\n", say(&needs_text(changes, table())))
}

/// The session's text with the comment at its top, or without it where no change is needed. A log stays as it is.
pub fn noted(session: &Session) -> String {
    let pasted = from_pasted_text(CONFIG_NAME, &session.text);
    if pasted.kind == PastedKind::Log {
        return session.text.clone();
    }
    let is_comment = |line: &&str| line.starts_with(COMMENT.trim_end());
    let rest = match session.text.lines().any(|line| is_comment(&line)) {
        true => session.text.split_inclusive('\n').filter(|line| !is_comment(line)).collect(),
        false => session.text.clone(),
    };
    let text = comment(&of_session(session)) + &rest;
    // A comment must not turn a command into something else.
    if from_pasted_text(CONFIG_NAME, &text).kind == pasted.kind { text } else { rest }
}

/// Undoes a change: its option is reset, or its key leaves the text.
pub fn undo(session: &mut Session, change: CodeChange) {
    change.reset(&mut session.options);
    if change == CodeChange::EvalBatchSize {
        session.text = edit::unset(&session.text, "eval_batch_size");
    }
    session.text = noted(session);
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_shared::train_config::CrossEntropy;

    fn chunked(text: &str) -> Session {
        let mut session = Session { text: text.into(), ..Session::default() };
        session.options.cross_entropy = CrossEntropy::Chunked;
        session
    }

    const NOTE: &str = "# headroom (code): needs 1 change to model.py: chunked cross-entropy\n";

    #[test]
    fn a_config_names_the_change_once_and_loses_the_comment_when_it_is_undone() {
        let mut session = chunked("# mine\nbatch_size = 8\n");
        for _ in 0..2 {
            session.text = noted(&session);
            assert_eq!(session.text, format!("{NOTE}# mine\nbatch_size = 8\n"));
        }
        undo(&mut session, CodeChange::ChunkedLoss);
        assert_eq!(session.text, "# mine\nbatch_size = 8\n");
        assert_eq!(of_session(&session), []);
    }

    #[test]
    fn a_command_names_it_on_a_line_of_its_own_and_stays_the_same_command() {
        let session = chunked("python train.py --batch_size=8");
        let text = noted(&session);
        assert_eq!(text, format!("{NOTE}python train.py --batch_size=8"));
        let read = |text: &str| from_pasted_text(CONFIG_NAME, text).read().value("batch_size");
        assert_eq!(read(&text), read(&session.text));
    }

    #[test]
    fn a_log_stays_as_it_is() {
        let session = chunked("Overriding: batch_size = 64\ntokens per iteration will be: 1\n");
        assert_eq!(noted(&session), session.text);
    }

    #[test]
    fn the_batch_of_evaluation_leaves_config_and_command() {
        for (text, rest) in [
            ("batch_size = 8\neval_batch_size = 2  # less\nn_layer = 6\n", "batch_size = 8\nn_layer = 6\n"),
            ("python train.py --eval_batch_size=2 --batch_size=8", "python train.py --batch_size=8"),
        ] {
            let mut session = Session { text: text.into(), ..Session::default() };
            assert_eq!(of_session(&session), [CodeChange::EvalBatchSize], "{text}");
            undo(&mut session, CodeChange::EvalBatchSize);
            assert_eq!(session.text, rest);
        }
    }
}
