//! Statements that are passed over: blocks, targets other than a name, and statements at which Python stops.

use super::super::defaults;
use super::super::lexer::{Kind, Lexer, Spot, Token, is_keyword};
use super::super::literal;
use super::super::parser::Reader;
use super::super::problem::Severity;
use super::super::shortened;
use super::super::value::Value;
use super::AUGMENTED;
use headroom_text::{self as text, Text};

/// Maximum number of names listed in a message.
const MAX_LISTED: usize = 5;

impl<'a> Reader<'a, '_> {
    /// Skips the rest of a line that assigns to something other than a single name.
    pub(super) fn pass_targets(&mut self, targets: &[Token<'a>], start: Spot) {
        let mut names: Vec<Token<'a>> = targets.to_vec();
        // The targets are read again to find their names.
        let mut again = Lexer::new(&self.lexer.text[start.offset..self.token.spot.offset]);
        let mut after_point = false;
        loop {
            let mut token = again.next();
            match token.kind {
                Kind::End => break,
                // A name after a dot is an attribute.
                Kind::Name if !is_keyword(token.text) && !after_point => {
                    token.spot.offset += start.offset;
                    (token.spot.line, token.spot.column) = (start.line, start.column);
                    names.push(token);
                }
                _ => {}
            }
            after_point = token.is_op(".");
        }
        self.pass_line(&mut names);
        self.passed(Severity::Warning, start, text::ONLY_SINGLE_NAMES.into(), &names);
    }

    /// Skips a statement without a block, and records a problem.
    pub(super) fn pass_simple(&mut self, severity: Severity) {
        let first = self.token;
        self.pass_simple_from(first, severity);
    }

    /// Passes a `raise` statement outside any block, at which Python stops.
    pub(super) fn raise(&mut self) {
        let first = self.token;
        while !self.token.ends_line() && !self.token.is_op(";") {
            self.bump();
        }
        let statement = self.lexer.text.get(first.spot.offset..self.last_end).unwrap_or_default();
        // In any other form, a link quotes the statement in one of this form.
        let message = statement.strip_prefix("raise ValueError(").and_then(|rest| rest.strip_suffix(')'));
        let is_own = message.is_some_and(
            |message| matches!(literal::string(message), Ok(value @ Value::Str(_)) if value.to_string() == message),
        );
        if is_own {
            self.settings.raised.get_or_insert_with(|| statement.to_owned());
        }
        if self.token.kind == Kind::End {
            self.pass_one_line(&mut Vec::new());
        }
        self.say(Severity::Error, first.spot, text::python_raises(shortened(statement)), None);
    }

    /// Skips the rest of a statement that began at `first`.
    pub(in crate::nanogpt) fn pass_simple_from(&mut self, first: Token<'a>, severity: Severity) {
        while !self.token.ends_line() && !self.token.is_op(";") {
            self.bump();
        }
        if self.token.kind == Kind::End {
            self.pass_one_line(&mut Vec::new());
        }
        self.say(severity, first.spot, text::not_evaluated(first.text), None);
    }

    /// Skips a statement with its block. Records a problem if it is the head or assigns something.
    pub(super) fn pass_block(&mut self, is_head: bool) {
        let first = self.token;
        let mut names = Vec::new();
        self.pass_line(&mut names);
        // Assignments in a function or a class are local to it.
        if matches!(first.text, "def" | "class" | "async") {
            names.clear();
        }
        if is_head || !names.is_empty() {
            self.passed(Severity::Warning, first.spot, text::block_not_evaluated(first.text), &names);
        }
    }

    /// Marks the names as not evaluated from here on.
    pub(super) fn forget(&mut self, names: &[Token<'a>]) {
        // After its settings, train.py only uses them.
        for name in names.iter().filter(|_| !self.is_program) {
            let origin = self.origin(name.spot, name.end());
            self.settings.set_unevaluated(name.text, origin, "");
            self.sites.remove(name.text);
        }
    }

    pub(in crate::nanogpt) fn passed(&mut self, severity: Severity, spot: Spot, what: Text, names: &[Token<'a>]) {
        self.forget(names);
        let mut listed: Vec<&str> = Vec::new();
        for name in names {
            if listed.len() < MAX_LISTED && !listed.contains(&name.text) && defaults::find(name.text).is_some() {
                listed.push(name.text);
            }
        }
        if listed.is_empty() || self.is_program {
            return self.say(severity.min(Severity::Warning), spot, what, None);
        }
        let decides = names.iter().any(|name| defaults::decides_memory(name.text));
        let severity = if decides { Severity::Error } else { severity };
        self.say(severity, spot, text::may_set(what, text::names(listed)), Some(text::WRITE_ASSIGNMENT.into()));
    }

    /// Skips the rest of the logical line, and the block after it if it ends in a colon. Collects the names that are
    /// assigned there. Returns `true` and records a problem if a bracket was never closed.
    pub(super) fn pass_line(&mut self, names: &mut Vec<Token<'a>>) -> bool {
        let header = self.lexer.indent;
        let (mut unclosed, opens_block) = self.pass_one_line(names);
        if opens_block {
            while self.token.kind == Kind::Newline {
                self.bump();
            }
            while self.token.kind != Kind::End && self.lexer.indent > header {
                unclosed |= self.pass_one_line(names).0;
                while self.token.kind == Kind::Newline {
                    self.bump();
                }
            }
        }
        unclosed
    }

    pub(super) fn pass_one_line(&mut self, names: &mut Vec<Token<'a>>) -> (bool, bool) {
        let mut starts = true;
        let mut last = self.token;
        while !self.token.ends_line() {
            last = self.bump();
            let assigns =
                self.token.is_op("=") || (self.token.kind == Kind::Op && AUGMENTED.contains(&self.token.text));
            if starts && last.kind == Kind::Name && assigns {
                names.push(last);
            }
            starts = last.kind == Kind::Op && matches!(last.text, ":" | ";" | "=");
        }
        if self.token.kind != Kind::End {
            return (false, last.is_op(":"));
        }
        let Some(spot) = self.lexer.recover_unclosed() else { return (false, last.is_op(":")) };
        // The lines skipped after the bracket are now read again, one at a time.
        names.retain(|name| name.spot.offset < spot.offset);
        self.bump();
        self.say(Severity::Error, spot, text::NEVER_CLOSED, Some(text::CLOSE_IT.into()));
        (true, false)
    }
}
