//! What a session's run needs besides its config: changes to nanoGPT's code, an environment variable and the vocabulary
//! of its data set. Comments in the text name them.

use headroom_planner::{
    advice::{CodeChange, changes_text, needs_text},
    link::{EXPANDABLE, code_flags, set_flag},
    nanogpt::{PastedKind, VOCABULARY_COMMENT},
    plan::{Plan, Request},
    session::{Options, resolve_settings},
};
use headroom_text::{Part, Separator, Text};

use super::{
    CONFIG_NAME, edit, parse,
    session::{ConfigFile, Session},
};
use crate::text::{self, say, table};

/// The beginning of the comments in every language, by which they are found and replaced. A list of the link's options
/// follows, from which a page in any language restores the changes.
const COMMENT: &str = "# headroom (";

/// What a run needs besides its config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Changes to nanoGPT's code.
    pub changes: Vec<CodeChange>,
    /// The allocator's environment variable with its value.
    pub variable: Option<String>,
    /// The vocabulary size of the data set.
    pub vocab_size: Option<u64>,
}

impl Needs {
    /// The needs of a plan.
    pub fn of_plan(plan: &Plan) -> Self {
        Self::of(&plan.request)
    }

    fn of(request: &Request) -> Self {
        Self {
            changes: CodeChange::needed_by(&request.train),
            variable: request.environment(),
            vocab_size: request.given_vocab_size,
        }
    }

    /// The needs of a session's run; none if the session is not a valid run.
    pub fn of_session(session: &Session) -> Self {
        resolve_settings(parse(&session.text).read(), &session.options)
            .request
            .as_ref()
            .map(Self::of)
            .unwrap_or_default()
    }

    /// Returns whether nanoGPT runs the plan as it is.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.variable.is_none() && self.vocab_size.is_none()
    }

    /// The needs in a few words, such as "1 change to model.py, expandable_segments".
    pub fn summary(&self) -> Part {
        let changes = (!self.changes.is_empty()).then(|| changes_text(&self.changes));
        let variable = self.variable.as_ref().map(|_| Text::from(text::EXPANDABLE));
        text::list(Separator::Comma, changes.into_iter().chain(variable).chain(self.vocabulary()))
    }

    /// The needs in full, such as "needs 1 change to model.py: chunked cross-entropy".
    pub fn in_full(&self) -> Part {
        text::list(Separator::Comma, self.code().into_iter().chain(self.environment()).chain(self.vocabulary()))
    }

    fn code(&self) -> Option<Text> {
        (!self.changes.is_empty()).then(|| needs_text(&self.changes, table()))
    }

    fn environment(&self) -> Option<Text> {
        self.variable.as_ref().map(|variable| text::needs_variable(variable.as_str()))
    }

    fn vocabulary(&self) -> Option<Text> {
        self.vocab_size.map(text::a_vocabulary_of)
    }

    /// The comments above a command: the changes to the code, and the vocabulary, which no argument sets. Each has a line
    /// break; empty if nothing is needed.
    pub fn command_comments(&self, options: &Options) -> String {
        let vocabulary = self.vocab_size.map(|size| format!("{VOCABULARY_COMMENT}{size}\n"));
        self.code_comment(options) + &vocabulary.unwrap_or_default()
    }

    fn code_comment(&self, options: &Options) -> String {
        let flags = code_flags(options).collect::<Vec<_>>().join(" ");
        // A key of the config expresses the batch of evaluation, without an option.
        comment(if flags.is_empty() { "code" } else { &flags }, self.code())
    }

    fn comments(&self, options: &Options) -> String {
        self.code_comment(options) + &comment(EXPANDABLE, self.environment())
    }
}

/// A comment above a command or a config, with its line break; empty without a need.
pub fn comment(kind: &str, need: Option<Text>) -> String {
    need.map(|need| [COMMENT, kind, "): ", &say(&need), "\n"].concat()).unwrap_or_default()
}

/// The options of changes that Headroom's comments in a text name.
pub fn named_changes(text: &str) -> impl Iterator<Item = &str> {
    let comments = text.lines().filter_map(|line| line.strip_prefix(COMMENT)?.split_once(')'));
    comments.flat_map(|(names, _)| names.split(' '))
}

/// The session's text with the comments at its top, or without them if nothing is needed. A log stays as it is.
pub fn noted(session: &Session) -> String {
    let pasted = parse(&session.text);
    if pasted.kind == PastedKind::Log {
        return session.text.clone();
    }
    // The vocabulary of a command is only in its comment, so that stays.
    let is_comment = |line: &&str| line.starts_with(COMMENT) && !line.starts_with(VOCABULARY_COMMENT);
    let rest = match session.text.lines().any(|line| is_comment(&line)) {
        true => session.text.split_inclusive('\n').filter(|line| !is_comment(line)).collect(),
        false => session.text.clone(),
    };
    let text = Needs::of_session(session).comments(&session.options) + &rest;
    // A comment must not change the detected kind of the text.
    if parse(&text).kind == pasted.kind { text } else { rest }
}

impl Session {
    /// Replaces the text. It has the comments of changes that are assumed, also of those that its comments name.
    pub fn replace_text(&mut self, text: String) {
        self.assume_changes(&text);
        self.set_text(text);
        self.note();
    }

    /// Replaces the text by that of a file, like [`Session::replace_text`].
    pub fn open_file(&mut self, file: ConfigFile) {
        self.assume_changes(&file.text);
        self.set_file(file);
        self.note();
    }

    /// Updates the comments, unless none are there or needed, because a long text is parsed for it.
    fn note(&mut self) {
        let assumed = Self::new(String::new(), self.options.clone());
        if self.text.contains(COMMENT) || !Needs::of_session(&assumed).comments(&self.options).is_empty() {
            self.text = noted(self);
        }
    }

    fn assume_changes(&mut self, text: &str) {
        for name in named_changes(text) {
            set_flag(&mut self.options, name);
        }
    }

    /// The name and the text of this run as a config file. A command or a log becomes a config.
    pub fn to_file(&self) -> (&str, String) {
        let name = self.file.as_ref().map_or(CONFIG_NAME, |file| &file.name);
        match edit::to_config(&self.text) {
            Some(text) => (name, noted(&Self { text, ..self.clone() })),
            None => (name, noted(self)),
        }
    }

    /// Changes options. A comment in the text names the changes to nanoGPT's code that they require.
    pub fn set_options(&mut self, change: impl FnOnce(&mut Options)) {
        change(&mut self.options);
        self.text = noted(self);
    }
}

/// Undoes a change: resets its option, or removes its key from the text.
pub fn undo(session: &mut Session, change: CodeChange) {
    change.reset(&mut session.options);
    if change == CodeChange::EvalBatchSize {
        session.text = edit::unset(&session.text, "eval_batch_size");
    }
    session.text = noted(session);
}

/// Removes the vocabulary size from the text.
pub fn undo_vocabulary(session: &mut Session) {
    if parse(&session.text).kind == PastedKind::Log {
        session.text = edit::as_config(&session.text);
    }
    session.text = edit::unset(&session.text, "vocab_size");
    session.text = noted(session);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{answer::PlannedSession, command::command_line, read_settings};
    use headroom_planner::{optimizer_spec::Optimizer, train_config::CrossEntropy};

    fn chunked(text: &str) -> Session {
        let mut session = Session { text: text.into(), ..Session::default() };
        session.options.cross_entropy = CrossEntropy::Chunked;
        session
    }

    const NOTE: &str = "# headroom (chunked_loss): needs 1 change to model.py: chunked cross-entropy\n";

    #[test]
    fn a_config_names_the_change_once_and_loses_the_comment_when_it_is_undone() {
        let mut session = chunked("# mine\nbatch_size = 8\n");
        for _ in 0..2 {
            session.text = noted(&session);
            assert_eq!(session.text, format!("{NOTE}# mine\nbatch_size = 8\n"));
        }
        undo(&mut session, CodeChange::ChunkedLoss);
        assert_eq!(session.text, "# mine\nbatch_size = 8\n");
        assert!(Needs::of_session(&session).is_empty());
    }

    #[test]
    fn text_that_replaces_another_gets_the_comments_of_assumed_changes() {
        let mut session = chunked("batch_size = 8\n");
        session.replace_text("batch_size = 16\n".into());
        assert_eq!(session.text, format!("{NOTE}batch_size = 16\n"));
        session.open_file(ConfigFile { name: "mine.py".into(), text: "n_layer = 6\n".into() });
        assert_eq!(session.to_file(), ("mine.py", format!("{NOTE}n_layer = 6\n")));
    }

    #[test]
    fn a_copied_text_restores_the_changes_that_its_comments_name() {
        let fitted = |session: &mut Session| {
            session.options.optimizer = Optimizer::ALL[1];
            session.options.expandable_segments = true;
            session.text = noted(session);
        };
        for text in ["batch_size = 8\n", "python train.py --batch_size=8"] {
            let mut copied = chunked(text);
            fitted(&mut copied);
            let mut pasted = Session::default();
            pasted.replace_text(copied.text.clone());
            assert_eq!((&pasted.text, &pasted.options), (&copied.text, &copied.options), "{text}");
            let command = command_line(&PlannedSession::of(&copied), &copied.options);
            let mut pasted = Session::default();
            pasted.replace_text(command);
            assert_eq!(Needs::of_session(&pasted).changes, Needs::of_session(&copied).changes, "{}", pasted.text);
        }
        // Without the option's name, the plan would contradict the comment.
        let mut session = Session::default();
        session.replace_text(format!("{}n_layer = 6\n", NOTE.replace("chunked_loss", "code")));
        assert_eq!(session.text, "n_layer = 6\n");
        assert_eq!(session.options, Options::default());
    }

    #[test]
    fn a_command_names_it_on_a_line_of_its_own_and_stays_the_same_command() {
        let session = chunked("python train.py --batch_size=8");
        let text = noted(&session);
        assert_eq!(text, format!("{NOTE}python train.py --batch_size=8"));
        let read = |text: &str| read_settings(text).value("batch_size");
        assert_eq!(read(&text), read(&session.text));
    }

    #[test]
    fn config_names_the_variable_until_it_is_undone() {
        let mut session = chunked("batch_size = 8\n");
        session.set_options(|options| options.expandable_segments = true);
        let variable = "# headroom (expandable): needs PYTORCH_ALLOC_CONF=expandable_segments:True\n";
        assert_eq!(session.text, format!("{NOTE}{variable}batch_size = 8\n"));
        let needs = Needs::of_session(&session);
        let words = |part| say(&text::fix_why_needs("L4", part));
        assert_eq!(words(needs.summary()), "fits L4, 1 change to model.py, expandable_segments");
        assert!(words(needs.in_full()).ends_with("cross-entropy, needs PYTORCH_ALLOC_CONF=expandable_segments:True"));
        session.set_options(|options| options.torch = "2.8".to_owned());
        assert!(session.text.contains("needs PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n"), "{}", session.text);
        session.set_options(|options| options.expandable_segments = false);
        assert_eq!(session.text, format!("{NOTE}batch_size = 8\n"));
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
            assert_eq!(Needs::of_session(&session).changes, [CodeChange::EvalBatchSize], "{text}");
            undo(&mut session, CodeChange::EvalBatchSize);
            assert_eq!(session.text, rest);
        }
    }
}
