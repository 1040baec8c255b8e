//! Statements that are passed over: blocks, targets other than a name, and statements at which Python stops.

use super::super::defaults;
use super::super::lexer::{Kind, Spot, Token};
use super::super::literal;
use super::super::parser::{Fault, Reader};
use super::super::problem::Severity;
use super::super::shortened;
use super::super::value::Value;
use super::binding::{bound_names, not_a_target};
use headroom_text::{self as text, Text};

/// Maximum number of names listed in a message.
const MAX_LISTED: usize = 5;

impl<'a> Reader<'a, '_> {
    /// Skips the rest of a line that assigns to something other than a single name. Returns a fault if Python cannot
    /// assign to it.
    pub(super) fn pass_targets(&mut self, targets: &[Token<'a>], start: Spot) -> Result<(), Fault<'a>> {
        let text = self.lexer.text.get(start.offset..self.token.spot.offset).unwrap_or_default();
        if let Some(token) = not_a_target(text) {
            let spot = self.at(start, token.spot);
            return Err(Fault { spot, what: text::NOT_EXPECTED, text: token.text });
        }
        self.pass_line();
        let mut names: Vec<Token<'a>> = targets.to_vec();
        names.extend(self.bound_from(Token { kind: Kind::Op, text: "", spot: start }, true));
        self.passed(Severity::Warning, start, text::ONLY_SINGLE_NAMES.into(), &names);
        Ok(())
    }

    /// Returns the position of a token in a text that begins at `start`, on its line.
    fn at(&self, start: Spot, within: Spot) -> Spot {
        let column = if within.line == 1 { start.column + within.column - 1 } else { within.column };
        Spot { offset: start.offset + within.offset, line: start.line + within.line - 1, column }
    }

    /// Returns the names that the statement from `first` to the current token may set.
    pub(in crate::nanogpt) fn bound_from(&self, first: Token<'a>, assignments: bool) -> Vec<Token<'a>> {
        let start = first.spot;
        let text = self.lexer.text.get(start.offset..self.last_end).unwrap_or_default();
        let mut names = bound_names(text, assignments);
        for name in &mut names {
            name.spot = self.at(start, name.spot);
        }
        names
    }

    /// Passes the names that an evaluated statement sets within its expressions.
    pub(super) fn pass_bindings(&mut self, first: Token<'a>) {
        let text = self.lexer.text.get(first.spot.offset..self.last_end).unwrap_or_default();
        if text.contains(":=") {
            let names = self.bound_from(first, false);
            if !names.is_empty() {
                self.passed(Severity::Warning, first.spot, text::not_evaluated(":="), &names);
            }
        }
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
            self.pass_one_line();
        }
        self.say(Severity::Error, first.spot, text::python_raises(shortened(statement)), None);
    }

    /// Skips the rest of a statement that began at `first`.
    pub(in crate::nanogpt) fn pass_simple_from(&mut self, first: Token<'a>, severity: Severity) {
        while !self.token.ends_line() && !self.token.is_op(";") {
            self.bump();
        }
        if self.token.kind == Kind::End {
            self.pass_one_line();
        }
        let names = self.bound_from(first, false);
        self.passed(severity, first.spot, text::not_evaluated(first.text), &names);
    }

    /// Skips a statement with its block. Records a problem if it is the head or assigns something.
    pub(super) fn pass_block(&mut self, is_head: bool) {
        let first = self.token;
        self.pass_line();
        let mut names = self.bound_from(first, true);
        // Assignments in a function or a class are local to it.
        if matches!(first.text, "def" | "class" | "async") {
            names.truncate(1);
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

    /// Skips the rest of the logical line, and the block after it if it ends in a colon. Returns `true` and records a
    /// problem if a bracket was never closed.
    pub(super) fn pass_line(&mut self) -> bool {
        let header = self.lexer.indent;
        let (mut unclosed, opens_block) = self.pass_one_line();
        if opens_block {
            while self.token.kind == Kind::Newline {
                self.bump();
            }
            while self.token.kind != Kind::End && self.lexer.indent > header {
                unclosed |= self.pass_one_line().0;
                while self.token.kind == Kind::Newline {
                    self.bump();
                }
            }
        }
        unclosed
    }

    /// Skips the rest of the logical line. Returns whether a bracket was never closed, and whether the line ends in a
    /// colon.
    fn pass_one_line(&mut self) -> (bool, bool) {
        let mut last = self.token;
        while !self.token.ends_line() {
            last = self.bump();
        }
        if self.token.kind != Kind::End {
            return (false, last.is_op(":"));
        }
        let Some(spot) = self.lexer.recover_unclosed() else { return (false, last.is_op(":")) };
        // The lines skipped after the bracket are now read again, one at a time.
        self.bump();
        self.say(Severity::Error, spot, text::NEVER_CLOSED, Some(text::CLOSE_IT.into()));
        (true, false)
    }
}
